"""The state of callbacks: the numbers, text and arrays among their attributes.

``EarlyStopping``, ``ReduceLROnPlateau``, ``ModelCheckpoint``, ``WarmUp``, Keras's history and most callbacks
of users keep their whole state there. If training has not changed a setting, the user's new value holds.
The file of a ``CSVLogger`` is cut back to its length at the checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keras.callbacks import Callback, CSVLogger, TensorBoard

from tfdistr import tf_internals
from tfdistr.checkpoint.json_values import Array, NotPlainError, from_plain, to_plain

# What belongs to a call of fit, what CSVLogger finds when it opens its file, and the number whose sign Keras
# changes when it finds that less is better.
_LEFT_OUT = {"params", "append", "append_header", "min_delta"}
_FILE_SIZE = "tfdistr_file_size"
# Key of the names of the attributes that training has not changed.
_AS_GIVEN = "tfdistr_as_given"


#: A snapshot of a value that can be compared: its plain form, and the kinds, shapes and digests of its
#: arrays, because the arrays may be large.
Copy = tuple[str, list[tuple[str, tuple[int, ...], bytes]]]
#: Snapshots by the name of a callback and the name of its attribute.
Given = Mapping[str, Mapping[str, Copy]]


def as_given(callbacks: Sequence[Callback]) -> Given:
    """Snapshots of the callbacks, to find out later which settings training has changed."""
    copies: dict[str, dict[str, Copy]] = {}
    for name, callback in _named(callbacks):
        copies[name] = {}
        for attribute, value in vars(callback).items():
            with contextlib.suppress(NotPlainError):
                copies[name][attribute] = _copy(value)
    return copies


def _copy(value: Any) -> Copy:
    arrays: list[Array] = []
    plain = repr(to_plain(value, arrays))
    return plain, [(a.dtype.name, a.shape, hashlib.sha256(a.tobytes()).digest()) for a in arrays]


def state_of(callbacks: Sequence[Callback], arrays: list[Array], given: Given) -> dict[str, Any]:
    """Return the state of the callbacks, by the name of each callback.

    Args:
        callbacks: The callbacks of this worker.
        arrays: List to which arrays are appended.
        given: The result of ``as_given`` before the training.
    """
    states = {}
    for name, callback in _named(callbacks):
        state: dict[str, Any] = {_AS_GIVEN: []}
        for attribute, value in vars(callback).items():
            if attribute in _LEFT_OUT or _of_process(callback, attribute):
                continue
            with contextlib.suppress(NotPlainError):
                now = _copy(value)  # also checks that all of the value is plain
                state[attribute] = to_plain(value, arrays)
                if now == given.get(name, {}).get(attribute):
                    state[_AS_GIVEN].append(attribute)
        if isinstance(callback, CSVLogger) and callback.csv_file is not None:
            state[_FILE_SIZE] = os.path.getsize(callback.filename)
        states[name] = state
    return states


def _of_process(callback: Callback, attribute: str) -> bool:
    """Return whether an attribute says what this process does; a process that resumes does not do it yet."""
    return isinstance(callback, TensorBoard) and attribute in tf_internals.TRACE_IN_PROCESS


def give_back(
    callbacks: Sequence[Callback], states: dict[str, Any], arrays: list[Array], given: Given
) -> None:
    """Restore the state of callbacks, whose training has begun.

    Args:
        callbacks: The callbacks of this worker.
        states: The result of ``state_of``.
        arrays: The arrays of ``states``.
        given: The result of ``as_given`` before this training. A setting that the user has changed since the
            checkpoint stays.
    """
    for name, callback in _named(callbacks):
        state = states.get(name, {})
        for attribute, plain in state.items():
            if attribute in (_FILE_SIZE, _AS_GIVEN):
                continue
            value = from_plain(plain, arrays)
            now = given.get(name, {}).get(attribute)
            if attribute not in state[_AS_GIVEN] or now is None or now == _copy(value):
                setattr(callback, attribute, value)


def before_training(callbacks: Sequence[Callback], states: dict[str, Any]) -> None:
    """Make callbacks that write into a file append at the length that the file had at the checkpoint."""
    for name, callback in _named(callbacks):
        size = states.get(name, {}).get(_FILE_SIZE)
        if isinstance(callback, CSVLogger) and size is not None:
            callback.append = True
            with contextlib.suppress(FileNotFoundError):
                os.truncate(callback.filename, min(size, os.path.getsize(callback.filename)))


def _named(callbacks: Sequence[Callback]) -> Iterator[tuple[str, Callback]]:
    """Yield the callbacks that have state, each with the name of its class and its number in that class."""
    seen: Counter[str] = Counter()
    for callback in callbacks:
        own = getattr(callback, "runs_for", callback)
        if getattr(own, "remembers", True):
            name = type(own).__name__
            yield f"{name} {seen[name]}", own
            seen[name] += 1
