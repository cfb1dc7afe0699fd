"""How a job says that it has reached a phase, and stays there: for interrupted.py, interrupted.R, workers."""

import os
import time
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["PHASE_FOLDER"])
SESSION = int(os.environ.get("PHASE_SESSION") or os.getpid())
os.environ["PHASE_SESSION"] = str(SESSION)


def reach(seconds: float = 60.0) -> None:
    """Say that the phase is reached, and wait; an interrupt ends the wait."""
    FOLDER.joinpath("reached").touch()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.02)


def in_session() -> bool:
    """Whether this process is the session, and no worker."""
    return os.getpid() == SESSION


class Written:
    """A callback that is slow to write."""

    def __reduce__(self) -> Any:
        reach()
        return Written, ()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """By this method it is taken for a callback."""


def compiling() -> Any:
    """A layer in whose first step TensorFlow stays."""
    import keras

    class Compiling(keras.layers.Layer):
        def call(self, x: Any, training: bool = False) -> Any:
            reach(5.0 if in_session() else 60.0)
            return x

    return Compiling()


def at(event: str, seconds: float) -> Any:
    """A callback that reaches the phase when Keras calls it the second time."""
    import keras

    calls = []

    def called(*arguments: Any, **more: Any) -> None:
        calls.append(event)
        if len(calls) == 2:
            reach(seconds)

    return keras.callbacks.LambdaCallback(**{event: called})


class OnTest:
    """Makes a callback of the validation."""

    def __new__(cls, seconds: float) -> Any:
        import keras

        class AtTest(keras.callbacks.Callback):
            def on_test_begin(self, logs: Any = None) -> None:
                reach(seconds)

        return AtTest()


def examples() -> Any:
    """A data set that is slow to make."""
    import numpy as np
    import tensorflow as tf

    reach()
    return tf.data.Dataset.from_tensor_slices((np.ones((64, 4), "float32"), np.ones(64, "float32")))
