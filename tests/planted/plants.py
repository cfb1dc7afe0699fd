"""What is planted into a run: callbacks that change it, and changes of its files."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from tfdistr.checkpoint.folder import CheckpointFolder, checkpoint_folder, read
from tfdistr.checkpoint.trace import TRACE

#: What a callback does to a model.
Change = Callable[[keras.Model], None]


class AtStep(keras.callbacks.Callback):
    """Changes the model once, after a step of the first epoch. Like an accident, it leaves no note."""

    remembers = False

    def __init__(self, step: int, change: Change) -> None:
        super().__init__()
        self._step, self._change, self._done = step, change, False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch + 1 == self._step and not self._done:
            self._done = True
            self._change(self.model)


def flips(layer: str, weight: int = 0) -> Change:
    """Return a change of one bit of a weight."""

    def change(model: keras.Model) -> None:
        variable = model.get_layer(layer).weights[weight]
        variable.assign(flipped(variable.numpy()))

    return change


def sets_rate(rate: float) -> Change:
    """Return a change of the learning rate."""
    return lambda model: model.optimizer.learning_rate.assign(rate)


def kills_once(mark: Path) -> Change:
    """Return a change that kills the process, if the file does not exist, which it then makes."""

    def change(model: keras.Model) -> None:
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    return change


def flipped(value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of float32 with one bit of the exponent of its largest number flipped."""
    changed = value.copy()
    bits = changed.reshape(-1).view(np.int32)
    bits[np.argmax(np.abs(changed))] ^= 1 << 24
    return changed


def flip_checkpoint(run: Path, shape: tuple[int, ...], at: int = -1) -> None:
    """Flip a bit of the first weight of a shape in a checkpoint, whose checksum is right again."""
    path = _files(run)[at]
    found = read(path)
    name = next(name for name, value in found.arrays.items() if value.shape == shape)
    changed = {**found.arrays, name: flipped(np.array(found.arrays[name]))}
    beside = CheckpointFolder(run.with_suffix(".beside"))
    beside.save(dataclasses.replace(found, arrays=changed)).replace(path)


def tear_checkpoint(run: Path, at: int = -1) -> None:
    """Cut a checkpoint in its middle."""
    path = _files(run)[at]
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def swap_checkpoints(run: Path, one: int = 0, other: int = -1) -> None:
    """Exchange the files of two checkpoints of a run."""
    first, second = _files(run)[one], _files(run)[other]
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])


def _files(run: Path) -> list[Path]:
    return sorted(checkpoint_folder(run).glob("*.checkpoint"))


def change_trace(run: Path, step: int) -> None:
    """Halve the loss of a step in the trace."""
    path = run / TRACE
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        if line.get("step") == step:
            line["loss"] /= 2
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
