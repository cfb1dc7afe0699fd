"""``distributed_fit()`` with real workers: the result of one worker, and what is said when they fail."""

import re
import runpy
import stat
import tempfile
import threading
import warnings
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from clusters import PROGRAMS, run_cluster
from launched import is_there
from slow import mostly_slow

import tfdistr
from tfdistr.errors import ArgumentError, ClusterStartError, WorkerFailedError
from tfdistr.jobs import run_dir as module

BOUND = 1e-6
X = np.random.default_rng(0).normal(size=(64, 3)).astype("float32")
Y = X.sum(1, keepdims=True)


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


CASES = re.findall(r'^    "(\w+)": lambda workers', (PROGRAMS / "joined.py").read_text(), re.MULTILINE)
QUICK = ["sample_weight", "mixed_data_frame", "function_of_batches", "per_worker_batch"]


@pytest.fixture(scope="module")
def joined(request, tmp_path_factory, with_pandas) -> list[Path]:
    """What two processes that joined by TF_CONFIG have trained: the cases that this session asks for."""
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    asked = {params["case"] for params in chosen if params.get("case") in CASES}
    folders = [tmp_path_factory.mktemp(f"joined-{index}") for index in range(2)]
    for worker in run_cluster("joined.py", 2, *[[str(folder), *asked] for folder in folders], timeout=200):
        assert worker.status == 0, worker.output[-3000:]
    return folders


# Slow: two processes train each case.
@pytest.mark.parametrize("case", mostly_slow(CASES, quick=QUICK))
def test_two_processes_equal_this_one(joined, case, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # Keras's, about the data that it is given
        runpy.run_path(str(PROGRAMS / "joined.py"), run_name="joined")["run"](case, str(tmp_path), 1)
    with np.load(tmp_path / f"{case}.npz") as expected:
        assert any(np.abs(expected[name]).max() > 0 for name in expected.files)
        for folder in joined:
            with np.load(folder / f"{case}.npz") as received:
                assert sorted(received.files) == sorted(expected.files)
                assert received["workers"] == 2
                for name in set(expected.files) - {"workers"}:
                    assert received[name].shape == expected[name].shape
                    scale = max(1.0, float(np.abs(expected[name]).max()))
                    assert np.abs(received[name] - expected[name]).max() <= BOUND * scale, name


class FailOnce(keras.callbacks.Callback):
    """Fails in the second epoch, unless there is a file that says that it has done so."""

    def __init__(self, marker: Path) -> None:
        super().__init__()
        self.marker = marker

    def on_epoch_begin(self, epoch: int, logs: dict | None = None) -> None:
        if epoch == 1 and not self.marker.exists():
            self.marker.write_text("")
            raise RuntimeError("the first time")


def test_a_failed_job_is_started_again(tmp_path, capsys):
    arguments = {"x": X, "y": Y, "epochs": 3, "seed": 1, "batch_size": 16, "verbose": 2}
    restarted = tfdistr.distributed_fit(
        model, **arguments, cluster=tfdistr.local_cluster(workers=1),
        failures=tfdistr.on_failure(max_restarts=1),
        callbacks=[FailOnce(tmp_path / "marker")], run_dir=tmp_path / "run",
    )  # fmt: skip
    shown = [line.partition("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown[0] == "Epoch 1/3"
    assert re.fullmatch(
        r"Starting the workers again: Worker 0 of 1 on .* failed: RuntimeError: the first time\.$", shown[1]
    )
    assert shown[2:] == ["Epoch 2/3", "Epoch 3/3"]  # the first one is in a checkpoint

    here = tfdistr.distributed_fit(model, **arguments)
    assert restarted.history["loss"] == pytest.approx(here.history["loss"], abs=BOUND)
    for mine, other in zip(restarted.model.get_weights(), here.model.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, atol=BOUND)
    tuning = restarted.params["tuning"]
    assert restarted.params == here.params | {"workers": 1, "checkpoint_every": "epoch", "tuning": tuning}
    (worker,) = restarted.workers
    assert (worker["index"], worker["status"]) == (0, "done")
    assert not is_there(worker["pid"])

    run_dir = tmp_path / "run"
    assert restarted.run_dir == str(run_dir)
    assert stat.S_IMODE(run_dir.stat().st_mode) == 0o700
    assert {path.name for path in run_dir.iterdir()} == {
        "backend.txt", "checkpoints", "job.json", "logs", "model.npz", "result.json", "run.json",
        "trace.jsonl", "training.json", "workers",
    }  # fmt: skip
    assert [path.name for path in (run_dir / "workers" / "0").iterdir()] == ["events.jsonl"]
    assert Path(worker["log"]) == run_dir / "logs" / "worker-0.log"
    with pytest.raises(ArgumentError, match="`run_dir` must be a new or empty folder"):
        tfdistr.distributed_fit(model, X, Y, cluster=tfdistr.local_cluster(1), run_dir=run_dir)


def only_here() -> None:
    raise ValueError("only here")


def test_the_worker_that_failed_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def fails_on_worker_1() -> keras.Model:
        if tf.distribute.get_strategy().worker_index == 1:
            only_here()
        return model()

    with pytest.raises(WorkerFailedError) as caught:
        tfdistr.distributed_fit(fails_on_worker_1, X, Y, cluster=tfdistr.local_cluster(workers=2))
    error = caught.value
    assert error.worker == 1
    assert error.message.startswith(f"Worker 1 of 2 on {error.host} failed: ValueError: only here\n")
    assert 'raise ValueError("only here")' in error.traceback
    assert error.traceback in error.message
    assert "ValueError: only here" in Path(error.log).read_text()
    assert [worker.index for worker in error.workers] == [0, 1]
    assert not any(is_there(worker.pid) for worker in error.workers)
    module.remove_temporary()
    assert Path(error.log).exists(), "the logs of a job that failed are kept"


def test_workers_that_do_not_start_in_time_are_named_and_their_logs_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cluster = tfdistr.local_cluster(workers=1, start_timeout=0.5, warm=False)  # shorter than any import
    with pytest.raises(ClusterStartError, match=r"worker 0 \(log: .*worker-0\.log\)"):
        tfdistr.distributed_fit(model, X, Y, cluster=cluster)
    module.remove_temporary()
    assert list(tmp_path.glob("tfdistr-*/logs/worker-0.log"))


def test_a_job_that_cannot_be_sent_starts_nothing(tmp_path):
    lock = threading.Lock()
    with pytest.raises(ArgumentError, match="cannot pickle"):
        tfdistr.distributed_fit(lambda: [lock], X, Y, cluster=tfdistr.local_cluster(2), run_dir=tmp_path)
    assert not list(tmp_path.iterdir())
