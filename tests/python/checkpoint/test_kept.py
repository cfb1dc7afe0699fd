"""How many checkpoints are kept, and which."""

import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import stores
from recovered import positions
from resumed import X, Y, plain, train

import tfdistr
from tfdistr.checkpoint.object_store import Store


class Breaks(keras.callbacks.Callback):
    """Makes a weight NaN in an epoch."""

    def __init__(self, epoch: int) -> None:
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == self.epoch:
            kernel, *others = self.model.get_weights()
            self.model.set_weights([kernel * np.nan, *others])


def epochs_in(run_dir: Path) -> list[int]:
    return [position.epoch for position in positions(run_dir)]


@pytest.mark.parametrize(
    ("keep", "left"), [(1, [6]), (2, [5, 6]), (4, [3, 4, 5, 6]), (9, [1, 2, 3, 4, 5, 6])]
)
def test_the_last_ones_are_kept(keep: int, left: list[int], tmp_path: Path) -> None:
    train(tmp_path / "run", plain, epochs=6, keep_checkpoints=keep)
    assert epochs_in(tmp_path / "run") == left


def test_the_last_one_with_finite_weights_is_never_removed(tmp_path: Path) -> None:
    train(tmp_path / "run", plain, epochs=6, callbacks=[Breaks(2)])
    assert epochs_in(tmp_path / "run") == [2, 5, 6]
    train(tmp_path / "run", plain, epochs=7, callbacks=[Breaks(9)], resume=True)  # another process reads it
    assert epochs_in(tmp_path / "run") == [2, 6, 7]
    again = tfdistr.replay(tmp_path / "run", 25, plain, X, Y, callbacks=[Breaks(2)])
    assert again.steps[0]["step"] == 15
    assert next(row["step"] for row in again.steps if row["again"]) == 25
    assert again.cause.where == "weights"


def stored() -> list[int]:
    marks = [name for name in Store("memory://bucket/kept").names() if name.endswith(".mark")]
    return sorted(int(mark.rpartition("/")[2].partition("-")[0]) for mark in marks)


class WaitsForUploads(keras.callbacks.Callback):
    """Begins an epoch when the checkpoint of the one before is in the store, which else may leave it out."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        while epoch and epoch not in stored():
            time.sleep(0.01)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("keep", "left"), [(1, [6]), (4, [3, 4, 5, 6])])
def test_a_store_keeps_as_many(keep: int, left: list[int]) -> None:
    with stores.memory():
        train("memory://bucket/kept", plain, epochs=6, keep_checkpoints=keep, callbacks=[WaitsForUploads()])
        assert stored() == left
