"""Functions that run in the session that called ``distributed_fit()``, at the end of each epoch.

The functions are never serialized. A session that trains by itself calls them. Otherwise the chief sends the
logs by its event "in_session" (`tfdistr.supervision.events`), and all workers wait for the answer: a JSON
line with "epoch" and "stop" that the session appends to ``RUN_DIR/session.jsonl``. All workers read the same
answer, so they stop together. Restarted workers find the answers of earlier epochs in the file.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from tfdistr.errors import ArgumentError
from tfdistr.schemas.events import Event
from tfdistr.utils.describe import describe
from tfdistr.utils.disk import writing
from tfdistr.utils.log_tail import Tail

_Result = TypeVar("_Result")

#: Called with an epoch, from 0, and its logs; returns whether to stop.
AtEpochEnd = Callable[[int, Mapping[str, Any]], bool]

ANSWERS = "session.jsonl"
"""The file of the run directory with the answers of the session."""
STOP = "stop"
"""The value of a function that stops the training."""

# The poll interval of a worker grows with the time that it has waited, between these seconds.
_SHORTEST, _LONGEST = 0.01, 0.25


class InSession:
    """A callback that stands for a function of the session; `in_session` makes it.

    It is no Keras callback: the session need not import Keras, and only ``distributed_fit()`` can call it.
    """

    async_safe = True  # Keras then looks at no other attribute before set_model()

    def __init__(self, on_epoch_end: Callable[[int, dict[str, Any]], object] | None) -> None:
        self.on_epoch_end = on_epoch_end

    def __reduce__(self) -> tuple[Any, ...]:
        return InSession, (None,)  # the function stays in the session

    def set_model(self, model: object) -> NoReturn:
        """Refuse Keras's own ``fit()``, which has no session beside its workers."""
        raise ArgumentError(
            "in_session() is for the callbacks of distributed_fit().",
            received="a call of Keras's fit(), evaluate() or predict()",
            fix="Train by distributed_fit(), or pass a Keras callback: each process that calls fit() is the "
            "session itself.",
        )


def in_session(on_epoch_end: Callable[[int, dict[str, Any]], object]) -> InSession:
    """Call a function in this session at the end of each epoch.

    The function may use whatever this session has: its variables, connections, widgets, the trial of a
    search. It is not sent to the workers. ``distributed_fit()`` calls it on the thread of its caller, after
    the validation and all other callbacks of the epoch. The next epoch waits for it.

    Args:
        on_epoch_end: Called with the number of the epoch, from 0 as in Keras, and a dictionary of the logs of
            all workers: the values that ``fit.history`` gets for this epoch. If it returns the text "stop",
            all workers stop after this epoch. Any other value is ignored. If it raises an error, the workers
            end, and ``distributed_fit()`` raises the same error.

    Returns:
        The callback, for the list ``callbacks`` of ``distributed_fit()``.

    Raises:
        ArgumentError: ``on_epoch_end`` is no function that takes two arguments.

    Example:
        >>> losses = []
        >>> show = tfdistr.in_session(lambda epoch, logs: losses.append(logs["loss"]))
        >>> fit = tfdistr.distributed_fit(
        ...     model, tfdistr.load_dataset("digits"), cluster=tfdistr.local_cluster(workers=2), epochs=2,
        ...     callbacks=[show])
        >>> losses == fit.history["loss"]
        True
    """
    if not callable(on_epoch_end):
        refuse_hook(describe(on_epoch_end))
    signature = None
    with contextlib.suppress(ValueError, TypeError):  # some functions of C have none
        signature = inspect.signature(on_epoch_end)
    if signature is not None:
        try:
            signature.bind(0, {})
        except TypeError:
            refuse_hook(f"a function of {signature}")
    return InSession(on_epoch_end)


def refuse_hook(received: str) -> NoReturn:
    """Refuse what is no function of an epoch and its logs."""
    raise ArgumentError(
        "`on_epoch_end` must be a function of two arguments, the epoch and the logs.",
        received=received,
        fix="Pass a function of (epoch, logs).",
    )


def at_epoch_end(
    given: Sequence[InSession], answers: Path | None, on_event: Callable[..., None], *, chief: bool
) -> AtEpochEnd | None:
    """Return the call of the functions at the end of each epoch; None if there are none."""
    if not given:
        return None
    if answers is None:
        functions = [each.on_epoch_end for each in given]
        return lambda epoch, logs: chief and _call(functions, epoch, logs)
    if not answers.exists():
        raise ArgumentError(
            "in_session() must be called in the session, not by a function that a worker calls.",
            received="a function `callbacks` that calls in_session()",
            fix="Pass callbacks=[in_session(...)], a list.",
        )
    return _Asking(answers, on_event if chief else None)


def _call(functions: Sequence[Any], epoch: int, logs: Mapping[str, Any]) -> bool:
    """Call all functions; return whether one of them stops the training."""
    returned = [function(epoch, dict(logs)) for function in functions]
    return any(isinstance(value, str) and value == STOP for value in returned)


class _Asking:
    """The end of an epoch in a worker: the chief asks the session, and every worker waits for the answer."""

    def __init__(self, answers: Path, on_event: Callable[..., None] | None) -> None:
        self._on_event = on_event
        self._tail = Tail(answers)
        self._known: dict[int, bool] = {}

    def __call__(self, epoch: int, logs: Mapping[str, object]) -> bool:
        from tfdistr.training.watchdog import progress  # TensorFlow, which the session need not import

        self._read()
        if epoch not in self._known and self._on_event is not None:
            self._on_event("in_session", epoch=epoch, metrics=logs)
        began = time.monotonic()
        while epoch not in self._known:
            progress()  # the session works: this worker does not hang
            time.sleep(min(max((time.monotonic() - began) / 20, _SHORTEST), _LONGEST))
            self._read()
        return self._known[epoch]

    def _read(self) -> None:
        for answer in map(json.loads, self._tail.lines()):
            self._known[answer["epoch"]] = answer["stop"]


class _FunctionFailed(Exception):
    """The error of a function, on its way through the supervisor, which would restart workers for some."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Session:
    """The functions of a job on workers, in the session that waits for them.

    Example:
        >>> session = Session([in_session(print)], run_dir)
        >>> session.answer_during(lambda: run_workers(..., on_event=session.on_event))
    """

    def __init__(self, callbacks: object, run_dir: Path) -> None:
        listed = callbacks if isinstance(callbacks, list | tuple) else []
        self._functions = [each.on_epoch_end for each in listed if isinstance(each, InSession)]
        self._answers = run_dir / ANSWERS
        self._answered: set[int] = set()
        self._answers.unlink(missing_ok=True)  # of an earlier job in this run directory
        if self._functions:
            self._append("")

    def on_event(self, event: Event) -> None:
        """Call the functions and answer, if a chief asks."""
        if event["event"] != "in_session" or event["epoch"] in self._answered:
            return
        try:
            stop = _call(self._functions, event["epoch"], event["metrics"])
        except Exception as error:
            raise _FunctionFailed(error) from None
        self._answered.add(event["epoch"])
        self._append(f"{json.dumps({'epoch': event['epoch'], 'stop': stop})}\n")

    def answer_during(self, run: Callable[[], _Result]) -> _Result:
        """Return what ``run`` returns, and raise errors of the functions as they are."""
        try:
            return run()
        except _FunctionFailed as failed:
            error = failed.error
        raise error  # not within the handler, which would change its context

    def _append(self, text: str) -> None:
        with writing(self._answers, "The answer to the workers"), self._answers.open("a") as file:
            file.write(text)
