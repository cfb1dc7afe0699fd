"""The checkpoint manager: it saves checkpoints of a training, and restores the training from them."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.callbacks import Callback

from tfdistr.checkpoint.chain import LINK, Chain
from tfdistr.checkpoint.folder import STOP, Array, Checkpoint, CheckpointFolder, Position
from tfdistr.checkpoint.preemption import Preemption, stopped
from tfdistr.checkpoint.python_state import (
    Given,
    NotPlainError,
    as_given,
    before_training,
    from_plain,
    give_back,
    random_state,
    set_random_state,
    state_of,
    to_plain,
)
from tfdistr.checkpoint.schedule import Schedule
from tfdistr.checkpoint.variables import (
    ArrayPart,
    all_finite,
    assign,
    build_optimizers,
    check_same,
    gather,
    other_model,
    pack,
    parts_of,
    share,
    trained_by,
    unpack,
    values_of,
    variables_of,
)
from tfdistr.collectives.interface import Collectives
from tfdistr.errors import ArgumentError, JobStoppedError

log = logging.getLogger("tfdistr")


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A loaded checkpoint on one worker.

    Attributes:
        total: Number of steps over all epochs.
        values: The values of all variables, one for each variable.
        notes: The state of callbacks, the states of random numbers, whether a callback had stopped the
            training, and the other state of this worker.
        arrays: The arrays of ``notes``.
    """

    position: Position
    total: int
    values: list[ArrayPart]
    notes: dict[str, Any]
    arrays: list[Array]


class CheckpointManager:
    """Saves checkpoints, and restores a training from one. All workers call it alike.

    Args:
        folder: The checkpoints of the run; the chief alone uses them.
        every: How often a checkpoint is written: a number of steps, or "epoch".
        collectives: Exchanges tensors with the peers; None without peers.
        others: Variables outside the model, which exist only if there are peers.
        on_event: Called as ``on_event("checkpoint", **fields)``.
        parts: The parts of the model by their names; see ``parts_of_run``.
        kernels: How the chief rounds, from ``describe_kernels()``; None if others compute the steps.
        before_save: Called with a text that says when, before a checkpoint is saved.

    Raises:
        ArgumentError: The checkpoint is of a model with other parts.
    """

    def __init__(
        self,
        folder: CheckpointFolder,
        every: int | str,
        preemption: Preemption,
        *,
        collectives: Collectives | None = None,
        others: Sequence[tf.Variable] = (),
        on_event: Callable[..., None] = lambda kind, **fields: None,
        parts: Mapping[str, str | None] | None = None,
        kernels: str | None = None,
        before_save: Callable[[str], None] = lambda when: None,
    ) -> None:
        self._folder = folder
        self._preemption = preemption
        self._collectives = collectives
        self._others = others
        self._on_event = on_event
        self._parts = dict(parts or {})
        self._kernels = kernels
        self._before_save = before_save
        self.found = self._load()
        total = (self.found.total if self.found else 0) - self.start.step
        self.schedule = Schedule(every, total, self.start.step)
        self._initial_callbacks: Given = {}

    @property
    def start(self) -> Position:
        """The position at which the training starts."""
        return self.found.position if self.found else Position(0, 0)

    @property
    def _is_chief(self) -> bool:
        return self._collectives is None or self._collectives.index == 0

    @property
    def _workers(self) -> int:
        return self._collectives.num_workers if self._collectives is not None else 1

    @property
    def logs(self) -> Any:
        """The logs of the last step of its epoch that the checkpoint contains."""
        return from_plain(self.found.notes["logs"], self.found.arrays) if self.found else {}

    @property
    def first_step(self) -> int:
        """The number of the first step, counted over all epochs."""
        return self.schedule.total + self.start.step

    @property
    def ended(self) -> bool:
        """Return whether the training was already at its end, because a callback had stopped it."""
        return self.found is not None and self.found.notes["ended"]

    def before_training(self, callbacks: Sequence[Callback], epochs: int) -> None:
        """Refuse a checkpoint later than ``epochs`` epochs; prepare callbacks, which next open files."""
        made = self.start.epoch + (self.start.step > 0)
        if made > epochs:
            raise ArgumentError(
                "`epochs` must be at least the number of epochs that the run has started.",
                received=f"epochs={epochs}, where the checkpoint is at {self.start}",
                fix=f"Pass epochs={made} or more, or start a new run in another `run_dir`.",
            )
        self._initial_callbacks = as_given(callbacks)
        if self.found:
            before_training(callbacks, self.found.notes["callbacks"])

    def begin(self, model: keras.Model, callbacks: Sequence[Callback]) -> Position:
        """Start after the callbacks: check that all workers have the same weights as the checkpoint."""
        if self.found:
            self.restore(model, callbacks)
        check_same(self._collectives, model)
        return self.start

    def restore(self, model: keras.Model, callbacks: Sequence[Callback]) -> None:
        """Restore the checkpoint to the model and the callbacks after training has begun."""
        found = self.found
        assert found is not None
        build_optimizers(model, found.notes["optimizers"])
        assign(variables_of(model), found.values)
        # The checkpoint of one worker has no such values, and one worker alone needs none.
        for variable, value in zip(self._others, found.notes["others"], strict=False):
            variable.assign(value)
        give_back(callbacks, found.notes["callbacks"], found.arrays, self._initial_callbacks)
        set_random_state(found.notes["random"], found.arrays)
        if found.notes["ended"]:
            model.stop_training = True

    def after_steps(
        self, model: keras.Model, callbacks: Sequence[Callback], epoch: int, done: int, logs: object = None
    ) -> None:
        """Save, if a checkpoint is due, after ``done`` steps of an epoch, of which ``logs`` are the last."""
        if not self.schedule.is_next(done):
            return
        preempted, _ = self._ask(model, done)
        if preempted or self.schedule.is_due(done):
            self._save(model, callbacks, Position(epoch, done), done, ended=False, logs=logs)
        if preempted:
            raise self._stopped(Position(epoch, done))
        self.schedule.plan(done)

    def after_epoch(self, model: keras.Model, callbacks: Sequence[Callback], epoch: int, done: int) -> None:
        """Save, if a checkpoint is due, after an epoch of ``done`` steps; see ``after_steps``."""
        preempted, ended = self._ask(model, done)
        position = Position(epoch + 1, 0)
        if preempted or ended or self.schedule.every == "epoch" or self.schedule.is_due(done):
            self._save(model, callbacks, position, done, ended=ended)
        self.schedule.total += done
        if preempted:
            raise self._stopped(position)

    def _stopped(self, position: Position) -> JobStoppedError:
        return stopped(position, self._folder.path.parent if self._is_chief else None)

    def _ask(self, model: keras.Model, done: int) -> tuple[bool, bool]:
        """Return whether a worker was preempted, and whether one stops. All call this at the same step."""
        pace = self.schedule.own_pace(done)
        preempted = self._preemption.signalled or (self._is_chief and (self._folder.path / STOP).exists())
        ended = bool(model.stop_training)
        if self._collectives is not None:
            # It also exchanges the pace of each worker: all workers must choose the same next time.
            own = np.zeros(self._collectives.num_workers + 2, np.int64)
            own[self._collectives.index], own[-2], own[-1] = pace, preempted, ended
            (together,) = self._collectives.all_reduce(tf.distribute.ReduceOp.SUM, [tf.constant(own)])
            *paces, signals, ends = together.numpy().tolist()
            pace, preempted, ended = min(paces), signals > 0, ends > 0
        self.schedule.pace = max(1, pace)
        return preempted, ended

    def _save(
        self,
        model: keras.Model,
        callbacks: Sequence[Callback],
        position: Position,
        done: int,
        *,
        ended: bool,
        logs: object = None,
    ) -> None:
        began = time.monotonic()
        self._before_save(f"before the checkpoint at {position}")
        values = values_of(variables_of(model))
        arrays: list[Array] = []
        notes: dict[str, Any] = {
            "callbacks": state_of(callbacks, arrays, self._initial_callbacks),
            "random": random_state(arrays),
            "others": [variable.numpy().item() for variable in self._others],
            "logs": _plain_logs(logs, arrays),
            "optimizers": trained_by(model),
            "ended": ended,
        }
        notes["kinds"], content = pack(arrays)
        gathered = gather(self._collectives, values, [json.dumps(notes).encode(), content])
        if self._is_chief:
            weights = {weight.path for weight in model.weights}
            known = zip(variables_of(model), values, strict=True)
            finite = all(all_finite(value) for variable, value in known if variable.name in weights)
            common: dict[str, Any] = {"workers": self._workers, "model": self._parts, "finite": finite}
            common[LINK] = self._chain.link()
            if self._kernels is not None:
                common["kernels"] = self._kernels
            total = self.schedule.total + done
            saved = self._folder.save(Checkpoint(self._folder.job, position, total, common, gathered))
            self._chain.saved(saved)
        self.schedule.note_saved(done)
        seconds = time.monotonic() - began
        self._on_event("checkpoint", epoch=position.epoch, step=position.step, seconds=seconds)

    def _load(self) -> LoadedCheckpoint | None:
        newest = self._folder.newest() if self._is_chief else None
        self._chain = Chain(self._folder.path.parent, newest)
        header = {"position": newest.position, "total": newest.total, **newest.notes} if newest else None
        own = dict(newest.arrays) if newest else None
        text, arrays = share(self._collectives, own, json.dumps(header))
        if (header := json.loads(text)) is None:
            return None
        _check_parts(self._parts, header.get("model", self._parts))
        if self._kernels is not None and "kernels" in header:
            _compare_kernels(self._kernels, header["kernels"])
        worker = self._collectives.index if self._collectives is not None else 0
        *values, notes, content = parts_of(arrays, worker, self._workers, header["workers"])
        state = json.loads(notes.own.tobytes())
        return LoadedCheckpoint(
            Position(*header["position"]), header["total"], values, state, unpack(state["kinds"], content.own)
        )


def _check_parts(parts: Mapping[str, str | None], saved: Mapping[str, str | None]) -> None:
    for name in {**saved, **parts}:
        own, other = (found.get(name, "nothing") for found in (parts, saved))
        if own != other and None not in (own, other):
            raise other_model(f"{name}: {own}, where the checkpoint has {other}")


def _compare_kernels(own: str, saved: str) -> None:
    (bits, processor), (saved_bits, saved_processor) = own.split(" ", 1), saved.split(" ", 1)
    if bits != saved_bits:
        log.warning(
            "This process (%s) rounds differently from the process that wrote the checkpoint (%s). The "
            "result differs in the last bits from that of a run that was never interrupted. The cause is "
            "another processor, another version of TensorFlow, or another value of TF_ENABLE_ONEDNN_OPTS.",
            processor, saved_processor,
        )  # fmt: skip


def _plain_logs(logs: object, arrays: list[Array]) -> Any:
    """Return the logs of a step in the form of JSON; empty if they have no such form."""
    with contextlib.suppress(NotPlainError):
        return to_plain({} if logs is None else logs, arrays)
    return to_plain({}, arrays)
