"""The cost of a replayed step: its processor time beside that of the same step in the training."""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras import layers
from report import table

import tfdistr

BATCH, STEPS, ROUNDS = 64, 100, 3  # of an epoch
MEASURED = (1, 2)  # epochs; TensorFlow traces in the first one


class Clock(keras.callbacks.Callback):
    """Notes the processor time of each epoch."""

    remembers = False

    def __init__(self) -> None:
        super().__init__()
        self.seconds: dict[int, float] = {}

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._began = time.process_time()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.seconds[epoch] = time.process_time() - self._began

    @property
    def of_step(self) -> float:
        """Milliseconds of a step."""
        return sum(self.seconds[epoch] for epoch in MEASURED) / len(MEASURED) / STEPS * 1e3


def cnn() -> keras.Model:
    return _compiled([
        layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten(),
        layers.Dense(64, "relu"),
    ])  # fmt: skip


def dense() -> keras.Model:
    return _compiled([layers.Flatten(), layers.Dense(512, "relu"), layers.Dense(512, "relu")])


def _compiled(hidden: list[layers.Layer]) -> keras.Model:
    model = keras.Sequential([keras.Input((28, 28, 1)), *hidden, layers.Dense(10, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def measure(make: Any, folder: Path) -> tuple[float, float]:
    """Return the milliseconds of a step in a training, and in its replay."""
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(BATCH * STEPS, 28, 28, 1)).astype("float32")
    y = rng.integers(0, 10, BATCH * STEPS)
    first, again = Clock(), Clock()
    keras.utils.clear_session()
    tfdistr.distributed_fit(
        make, x, y, batch_size=BATCH, epochs=4, seed=1, verbose=0,
        run_dir=folder, checkpoint_every=10**6, callbacks=[first],
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", tfdistr.TfdistrWarning)  # of the callback
        replay = tfdistr.replay(folder, 3 * STEPS + 1, make, x, y, callbacks=[again])
    assert replay.difference == 0.0
    return first.of_step, again.of_step


def cost() -> str:
    """Return the table."""
    kinds = {"CNN": cnn, "dense layers": dense}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for _ in range(ROUNDS):
        for name, make in kinds.items():
            with tempfile.TemporaryDirectory(prefix="tfdistr-") as folder:
                found[name].append(measure(make, Path(folder) / "run"))
    rows = []
    for name, times in found.items():
        ratios = sorted(again / first for first, again in times)
        first, again = (f"{statistics.median(each):.2f}" for each in zip(*times, strict=True))
        rounds = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
        rows.append((name, f"{statistics.median(ratios):.2f}", rounds, first, again))
    return table(("model", "replay / training", "of single rounds", "training, ms", "replay, ms"), rows)


if __name__ == "__main__":
    print(cost())
