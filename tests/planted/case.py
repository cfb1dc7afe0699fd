"""A row of the table: a fault that is planted into a run, or a healthy pair, and what must be found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nets import BATCH, DATA, MODELS, ROWS, STEPS

from tfdistr.data.order.shuffle_order import Order

SEED = 1


@dataclass(frozen=True)
class Found:
    """What was found, or must be found.

    Attributes:
        step: The step, counted from 1.
        reason: The reason that a bisection gives; where a step is not finite, and the operation; or words of
            a message.
        layer: The layer, or the input.
        row: The row of the data, if it is one row.
        odd: Which of two runs does not repeat: "a", "b" or "".
    """

    step: int | None = None
    reason: str | None = None
    layer: str | None = None
    row: int | None = None
    odd: str = ""


#: Nothing is found.
NOTHING = Found()


@dataclass(frozen=True)
class Case:
    """A fault that is planted into a run, or a healthy pair.

    Attributes:
        fault: The fault in words.
        net: The name of the model.
        finds: What must be found; ``NOTHING`` for a healthy pair.
        workers: The number of workers.
        virtual: The number of virtual workers.
        by: "nan" (replay of the step that is not finite), "bisect", "verify", "replay" or "training" (a
            message of these).
        both: Arguments of both runs; ``model`` has the arguments of the model.
        other: Those that only the faulty run has, or the other run of a pair.
        knows: What the examiner knows of ``other``: "model", "data" or "callbacks".
        after: Changes the folder of the faulty run at its end, or after its first epoch, if it is resumed.
        resumed: Whether the faulty run trains the second epoch as a second job.
        examined: Other arguments of the examination.
    """

    fault: str
    net: str
    finds: Found
    workers: int = 1
    virtual: int | None = None
    by: str = "bisect"
    both: Mapping[str, Any] = field(default_factory=dict)
    other: Mapping[str, Any] = field(default_factory=dict)
    knows: str = ""
    after: Callable[[Path], None] | None = None
    resumed: bool = False
    examined: Mapping[str, Any] = field(default_factory=dict)

    def arguments(self, *, other: bool) -> dict[str, Any]:
        """Return the arguments of one of the two runs."""
        x, y = DATA[self.net]
        given: dict[str, Any] = {
            "x": x, "y": y, "batch_size": BATCH, "epochs": 2, "seed": SEED, "workers": self.workers,
            "virtual_workers": self.virtual, "checkpoint_every": 4, "keep_checkpoints": 99, "model": {},
        } | dict(self.both)  # fmt: skip
        if other:
            changed = dict(self.other)
            given |= changed | {"model": {**given["model"], **changed.get("model", {})}}
        given["model"] = MODELS[self.net](**given["model"])
        return given


def step_of(row: int) -> int:
    """Return the step of the first epoch that reads a row of shuffled data."""
    order = Order(ROWS, BATCH, SEED, shuffle=True)
    (step,) = [step for step in range(STEPS) if row in order.block(step, 1)]
    return step + 1


def with_row(net: str, row: int, value: Any, part: int = 0) -> Any:
    """Return the inputs of a model (part 0) or its targets (part 1) with another row."""
    changed = DATA[net][part].copy()
    changed[row] = value
    return changed
