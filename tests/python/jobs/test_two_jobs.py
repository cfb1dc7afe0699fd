"""Two jobs in one run directory: the second is refused, and the first ends as if nothing had happened."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tfdistr
from tfdistr.checkpoint.lock import LOCK
from tfdistr.errors import ArgumentError

pytestmark = pytest.mark.timeout(240)

JOB = """
import os, sys, time
import numpy as np, keras, tfdistr
from keras.callbacks import LambdaCallback
run_dir, workers, go = sys.argv[1:]

def model():
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

def wait(epoch, logs):
    if epoch == 2 and go:
        print("at epoch 3", flush=True)
        until = time.monotonic() + 120
        while not os.path.exists(go) and time.monotonic() < until:
            time.sleep(0.05)

if __name__ == "__main__":
    x = np.random.default_rng(1).normal(size=(64, 4)).astype("float32")
    cluster = tfdistr.local_cluster(int(workers), follow=True) if int(workers) else None
    fit = tfdistr.distributed_fit(
        model, x=x, y=x.sum(1), batch_size=16, epochs=4, seed=1, verbose=0, cluster=cluster, resume=True,
        callbacks=[LambdaCallback(on_epoch_begin=wait)], run_dir=run_dir, checkpoint_every="epoch",
    )
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("script") / "job.py"
    path.write_text(JOB)
    return path


@contextlib.contextmanager
def job(script: Path, run_dir: Path, workers: int, go: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, script, run_dir, str(workers), go],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_epoch(process: subprocess.Popen[str], workers: int = 2) -> None:
    """Wait until each worker is at epoch 3: the chief has written its checkpoint before that."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if "".join(lines).count("at epoch 3") == workers:
            return
    raise AssertionError("".join(lines))


def second(run_dir: Path, *, resume: bool) -> None:
    """The second job; it must be refused before it needs a model."""
    import numpy as np

    tfdistr.distributed_fit(
        lambda: None, x=np.zeros((4, 4)), y=np.zeros(4), cluster=tfdistr.local_cluster(2), resume=resume,
        run_dir=run_dir, checkpoint_every="epoch",
    )  # fmt: skip


def test_the_second_job_is_refused_and_the_first_goes_on(script, tmp_path):
    run_dir, go = tmp_path / "run", tmp_path / "go"
    with job(script, run_dir, 0, str(go)) as first:
        wait_for_epoch(first, 1)
        before = sorted(run_dir.rglob("*"))
        for resume in (True, False):
            with pytest.raises(ArgumentError, match="Only one job at a time") as caught:
                second(run_dir, resume=resume)
            assert f"(process {first.pid} on " in caught.value.received
        assert sorted(run_dir.rglob("*")) == before
        go.touch()
        output, _ = first.communicate(timeout=200)
        assert first.returncode == 0, output
    assert not (run_dir / LOCK).exists()
    with pytest.raises(ArgumentError, match="must be a new or empty folder"):
        second(run_dir, resume=False)
