"""Trackers with their real libraries, in the environment of tools/setup-beside.sh."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EPOCHS = 4


@pytest.fixture(autouse=True, scope="module")
def _quiet(with_pandas: None) -> Any:
    """What the libraries would tell their makers, they do not; MLflow needs pandas."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY", "WANDB_DISABLE_SENTRY", "WANDB_SILENT"):
            patch.setenv(name, "true")
        patch.setenv("WANDB_ERROR_REPORTING", "false")
        patch.setenv("TF_CONFIG", "")
        yield


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Any]:
    """Trains a small model on two workers; one of them may be killed in the third epoch."""

    def train(callbacks: Callable[[], list[Any]], *, kill: int | None = None, **options: Any) -> Any:
        import tfdistr

        mark = str(tmp_path / "killed")

        def model() -> Any:
            import keras

            made = keras.Sequential([
                keras.layers.Rescaling(1 / 16), keras.layers.Flatten(),
                keras.layers.Dense(10, activation="softmax"),
            ])  # fmt: skip
            made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
            return made

        def with_a_kill() -> list[Any]:
            import pathlib
            import signal
            import time

            import keras

            import tfdistr

            def kill_once(epoch: int, logs: Any) -> None:
                if epoch == 2 and tfdistr.worker_index() == kill and not os.path.exists(mark):
                    time.sleep(2)  # until the tracker has sent what it has
                    pathlib.Path(mark).touch()
                    os.kill(os.getpid(), signal.SIGKILL)

            return [keras.callbacks.LambdaCallback(on_epoch_begin=kill_once), *callbacks()]

        data = tfdistr.load_dataset("digits", "test")
        if kill is not None:
            options |= {"checkpoint_every": "epoch", "failures": tfdistr.on_failure(max_restarts=1)}
        return tfdistr.distributed_fit(
            model, data, validation_data=data, cluster=tfdistr.local_cluster(2), epochs=EPOCHS, seed=1,
            verbose=0, callbacks=callbacks if kill is None else with_a_kill, **options,
        )  # fmt: skip

    return train
