"""MLflow's own callback and its real server: one run, of the chief, with the numbers of the fit."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tfdistr

mlflow: Any = pytest.importorskip("mlflow", reason="MLflow is not installed here: make test-trackers has it")
pytestmark = pytest.mark.timeout(280)


@pytest.fixture(scope="module")
def server(_quiet: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of MLflow's server."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port),
             "--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db",
             "--artifacts-destination", str(folder / "artifacts")],
            stdout=log, stderr=log, start_new_session=True, cwd=folder,
            env=os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "TMPDIR": str(folder)},
        )  # fmt: skip
    try:
        _wait(f"{address}/health", process, folder / "log")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLFLOW_TRACKING_URI", address)
            yield address
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(address: str, process: subprocess.Popen[Any], log: Path) -> None:
    end = time.monotonic() + 120
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < end, log.read_text()
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.3)


@pytest.fixture
def run_id(server: str, request: pytest.FixtureRequest) -> str:
    """A run that nothing has logged to, in an experiment of the test's name."""
    client = mlflow.MlflowClient()
    return client.create_run(client.create_experiment(request.node.name)).info.run_id


def check(run_id: str, history: dict[str, list[float]]) -> None:
    """The experiment has this run alone, which has ended, with the numbers of the history, epoch by epoch."""
    client = mlflow.MlflowClient()
    run = client.get_run(run_id)
    (only,) = client.search_runs([run.info.experiment_id])
    assert (only.info.run_id, only.info.status) == (run_id, "FINISHED")
    assert run.data.params["optimizer_name"] == "adam"
    assert [file.path for file in client.list_artifacts(run_id)] == ["model_summary.txt"]
    assert set(history) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    for name, values in history.items():
        logged = {metric.step: metric.value for metric in client.get_metric_history(run_id, name)}
        assert logged == pytest.approx(dict(enumerate(values)), rel=1e-6)


def with_run(run_id: str) -> Any:
    def callbacks() -> list[Any]:
        import mlflow

        import tfdistr

        if not tfdistr.is_chief():
            return []
        mlflow.start_run(run_id=run_id)
        return [mlflow.keras.MlflowCallback()]

    return callbacks


def test_the_run_has_the_numbers_of_the_fit(train, run_id):
    check(run_id, train(with_run(run_id)).history)


@pytest.mark.slow(reason="starts two workers twice, and a server")
def test_a_restart_goes_on_in_the_same_run(train, run_id):
    check(run_id, train(with_run(run_id), kill=0).history)


def test_a_run_that_fails_says_so(train, run_id):
    def callbacks() -> list[Any]:
        import keras

        import tfdistr

        def fail(epoch: int, logs: Any) -> None:
            if tfdistr.is_chief():
                raise RuntimeError("no more")

        return [*with_run(run_id)(), keras.callbacks.LambdaCallback(on_epoch_end=fail)]

    with pytest.raises(tfdistr.WorkerFailedError, match="no more"):
        train(callbacks)
    assert mlflow.get_run(run_id).info.status == "FAILED"
