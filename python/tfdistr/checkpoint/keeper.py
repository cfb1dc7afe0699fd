"""Keeps the checkpoints of a training, and brings it back to where it was."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras.callbacks import Callback

from tfdistr.checkpoint.callback_state import Given, as_given, before_training, give_back, state_of
from tfdistr.checkpoint.folder import STOP, Array, Checkpoint, CheckpointFolder, Position
from tfdistr.checkpoint.gather import Part, check_same, gather, pack, parts_of, share, unpack
from tfdistr.checkpoint.json_values import NotPlainError, from_plain, to_plain
from tfdistr.checkpoint.model_state import assign, values_of, variables_of
from tfdistr.checkpoint.preemption import Preemption, stopped
from tfdistr.checkpoint.random_state import random_state, set_random_state
from tfdistr.communication.collectives import Collectives
from tfdistr.errors import ArgumentError, JobStoppedError

#: Seconds between two times that the workers ask each other whether one was told to end.
ASK_SECONDS = 1.0


@dataclass(frozen=True)
class Found:
    """A checkpoint, as one worker has it.

    Attributes:
        position: Where the training was.
        total: Number of steps that were made in all epochs together.
        ended: Whether a callback had stopped the training.
        values: The values of all variables, one for each.
        notes: What callbacks remember, the states of random numbers, and what else a worker has of its own.
        arrays: The arrays of ``notes``.
    """

    position: Position
    total: int
    ended: bool
    values: list[Part]
    notes: dict[str, Any]
    arrays: list[Array]


class Keeper:
    """What the training loop asks when to save, and what saves. It does the same on all workers.

    Args:
        folder: The checkpoints of the run; the chief alone uses them.
        every: How often one is written: after so many steps, or "epoch".
        preemption: What notes SIGTERM.
        collectives: What carries tensors to the peers; None without peers.
        others: Numbers beside the variables of the model, of what is there only where there are peers.
        on_event: Called as ``on_event("checkpoint", **fields)``.
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
    ) -> None:
        self.every = every
        self._folder = folder
        self._preemption = preemption
        self._collectives = collectives
        self._is_chief = collectives is None or collectives.index == 0
        self._workers = collectives.num_workers if collectives is not None else 1
        self._others = others
        self._on_event = on_event
        self.found = self._load()
        #: Where the training begins.
        self.start = self.found.position if self.found else Position(0, 0)
        #: Steps that were made before this epoch.
        self.total = (self.found.total if self.found else 0) - self.start.step
        # After how many steps, over all epochs, the last checkpoint was written.
        self._saved = self.first_step
        self._execution = 1
        self._pace, self._asked_at, self._asked = 1, 0, time.monotonic()
        self._next = 0
        self._given: Given = {}

    @property
    def logs(self) -> Any:
        """The logs of the last step that the checkpoint has of its epoch."""
        return from_plain(self.found.notes["logs"], self.found.arrays) if self.found else {}

    @property
    def first_step(self) -> int:
        """The number of the first step to be made, counted over all epochs."""
        return self.total + self.start.step

    @property
    def ended(self) -> bool:
        """Whether the training was at its end already, because a callback had stopped it."""
        return self.found is not None and self.found.ended

    def before_training(self, callbacks: Sequence[Callback], epochs: int) -> None:
        """Prepare callbacks, which open their files next.

        Raises:
            ArgumentError: The training was further than ``epochs``.
        """
        made = self.start.epoch + (self.start.step > 0)
        if made > epochs:
            raise ArgumentError(
                "`epochs` must be at least as many as the run has begun.",
                received=f"epochs={epochs}, where the checkpoint is at {self.start}",
                fix=f"Pass epochs={made} or more, or begin anew in another `run_dir`.",
            )
        self._given = as_given(callbacks)
        if self.found:
            before_training(callbacks, self.found.notes["callbacks"])

    def begin(self, model: keras.Model, callbacks: Sequence[Callback]) -> Position:
        """Begin, once callbacks have: see that all workers have the same weights, those of the checkpoint.

        What a checkpoint within an epoch has is given to model and callbacks again when this epoch has begun.

        Returns:
            Where the training begins.

        Raises:
            ArgumentError: The checkpoint is that of another model.
            JobMismatchError: The workers have different weights.
        """
        if self.found:
            self.restore(model, callbacks)
        self._check_same(model)
        return self.start

    def restore(self, model: keras.Model, callbacks: Sequence[Callback]) -> None:
        """Give model and callbacks, whose training has begun, what the checkpoint has.

        Raises:
            ArgumentError: It is that of another model.
        """
        found = self.found
        assert found is not None
        assign(variables_of(model), found.values)
        # The checkpoint of one worker has none of these, and one worker alone needs none.
        for variable, value in zip(self._others, found.notes["others"], strict=False):
            variable.assign(value)
        give_back(callbacks, found.notes["callbacks"], found.arrays, self._given)
        set_random_state(found.notes["random"], found.arrays)
        if found.ended:
            model.stop_training = True

    def _check_same(self, model: keras.Model) -> None:
        if self._collectives is None:
            return
        own = [v.value.values[0] if isinstance(v.value, tf.distribute.DistributedValues) else v.value
               for v in model.trainable_variables]  # fmt: skip
        check_same(self._collectives, [variable.read_value().numpy() for variable in own])

    def begin_epoch(self, done: int, execution: int = 1) -> None:
        """Note that an epoch begins, of which ``done`` steps are made."""
        self._execution = execution
        self._plan(done)

    def until(self, done: int) -> int:
        """How many steps may be made before ``after_steps`` is to be called."""
        return max(1, self._next - done)

    def after_steps(
        self, model: keras.Model, callbacks: Sequence[Callback], epoch: int, done: int, logs: Any = None
    ) -> None:
        """Save, if it is time to, after ``done`` steps of an epoch that is not over.

        ``logs`` are those of its last step, where it may turn out that this was the last one of the epoch.

        Raises:
            JobStoppedError: A worker was told to end; what there is was saved.
        """
        if done < self._next:
            return
        preempted, _ = self._ask(model, done)
        if preempted or self._due() <= done:
            self._save(model, callbacks, Position(epoch, done), done, ended=False, logs=logs)
        if preempted:
            raise self._stopped(Position(epoch, done))
        self._plan(done)

    def after_epoch(self, model: keras.Model, callbacks: Sequence[Callback], epoch: int, done: int) -> None:
        """Save, if it is time to, after an epoch of ``done`` steps.

        Raises:
            JobStoppedError: A worker was told to end; what there is was saved.
        """
        preempted, ended = self._ask(model, done)
        position = Position(epoch + 1, 0)
        if preempted or ended or self.every == "epoch" or self._due() <= done:
            self._save(model, callbacks, position, done, ended=ended)
        self.total += done
        if preempted:
            raise self._stopped(position)

    def _stopped(self, position: Position) -> JobStoppedError:
        return stopped(position, self._folder.path.parent if self._is_chief else None)

    def _due(self) -> float:
        """After how many steps of this epoch a checkpoint is due."""
        if not isinstance(self.every, int):
            return math.inf
        return (self._saved // self.every + 1) * self.every - self.total

    def _plan(self, done: int) -> None:
        self._asked_at, self._asked = done, time.monotonic()
        following = min(done + self._pace, self._due())
        self._next = math.ceil(following / self._execution) * self._execution

    def _ask(self, model: keras.Model, done: int) -> tuple[bool, bool]:
        """Whether a worker was told to end, and whether one stops. All must call it after the same steps."""
        made, seconds = done - self._asked_at, time.monotonic() - self._asked
        pace = min(max(1, 2 * made), max(1, int(made * ASK_SECONDS / max(seconds, 1e-9))))
        preempted = self._preemption.signalled or (self._is_chief and (self._folder.path / STOP).exists())
        ended = bool(model.stop_training)
        if self._collectives is not None:
            # Also how many steps it takes each: the next time must be the same for all.
            own = np.zeros(self._collectives.num_workers + 2, np.int64)
            own[self._collectives.index], own[-2], own[-1] = pace, preempted, ended
            (together,) = self._collectives.all_reduce(tf.distribute.ReduceOp.SUM, [tf.constant(own)])
            *paces, signals, ends = together.numpy().tolist()
            pace, preempted, ended = min(paces), signals > 0, ends > 0
        self._pace = max(1, pace)
        return preempted, ended

    def _save(
        self,
        model: keras.Model,
        callbacks: Sequence[Callback],
        position: Position,
        done: int,
        *,
        ended: bool,
        logs: Any = None,
    ) -> None:
        began = time.monotonic()
        values = values_of(variables_of(model))
        arrays: list[Array] = []
        notes: dict[str, Any] = {
            "callbacks": state_of(callbacks, arrays, self._given),
            "random": random_state(arrays),
            "others": [variable.numpy().item() for variable in self._others],
            "logs": _plain_logs(logs, arrays),
            "ended": ended,
        }
        notes["kinds"], content = pack(arrays)
        gathered = gather(self._collectives, values, [json.dumps(notes).encode(), content])
        if self._is_chief:
            workers = {"workers": self._workers}
            self._folder.save(
                Checkpoint(self._folder.job, position, self.total + done, workers, arrays=gathered)
            )
        self._saved = self.total + done
        seconds = time.monotonic() - began
        self._on_event("checkpoint", epoch=position.epoch, step=position.step, seconds=seconds)

    def _load(self) -> Found | None:
        newest = self._folder.newest() if self._is_chief else None
        header = {"position": newest.position, "total": newest.total, **newest.notes} if newest else None
        own = dict(newest.arrays) if newest else None
        text, arrays = share(self._collectives, own, json.dumps(header))
        if (header := json.loads(text)) is None:
            return None
        worker = self._collectives.index if self._collectives is not None else 0
        *values, notes, content = parts_of(arrays, worker, self._workers, header["workers"])
        state = json.loads(notes.own.tobytes())
        return Found(
            Position(*header["position"]), header["total"], state["ended"], values, state,
            unpack(state["kinds"], content.own),
        )  # fmt: skip


def _plain_logs(logs: Any, arrays: list[Array]) -> Any:
    """The logs of a step in the form of JSON, if they have one."""
    with contextlib.suppress(NotPlainError):
        return to_plain({} if logs is None else logs, arrays)
    return to_plain({}, arrays)
