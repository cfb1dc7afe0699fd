"""What callbacks remember: the numbers, text and arrays among their attributes.

``EarlyStopping``, ``ReduceLROnPlateau``, ``ModelCheckpoint``, ``WarmUp`` and Keras's history keep all they
know so, and so do most that users write. Settings that are given anew, and that training had not changed, are
the new ones. The file of a ``CSVLogger`` is cut back to what it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from keras.callbacks import Callback, CSVLogger

from tfdistr.checkpoint.json_values import Array, NotPlainError, from_plain, to_plain

# What belongs to a call of fit, what CSVLogger finds out when it opens its file, and the number whose sign
# Keras changes when it finds out whether less is better.
_LEFT_OUT = {"params", "append", "append_header", "min_delta"}
_FILE_SIZE = "tfdistr_file_size"
# The names of the attributes that training has not changed.
_AS_GIVEN = "tfdistr_as_given"


#: What a value was, in a form that can be compared: plain, and the kinds, shapes and digests of its arrays,
#: which may be large.
Copy = tuple[str, list[tuple[str, tuple[int, ...], bytes]]]
#: By the names of a callback and of its attribute.
Given = Mapping[str, Mapping[str, Copy]]


def as_given(callbacks: Sequence[Callback]) -> Given:
    """What the callbacks are like, to find out later which settings training has changed."""
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
    """What the callbacks remember, by the name of each.

    Args:
        callbacks: The callbacks of this worker.
        arrays: Arrays are appended to it.
        given: What ``as_given`` found before the training.
    """
    states = {}
    for name, callback in _named(callbacks):
        state: dict[str, Any] = {_AS_GIVEN: []}
        for attribute, value in vars(callback).items():
            if attribute in _LEFT_OUT:
                continue
            with contextlib.suppress(NotPlainError):
                now = _copy(value)  # which also sees whether it is plain, all of it
                state[attribute] = to_plain(value, arrays)
                if now == given.get(name, {}).get(attribute):
                    state[_AS_GIVEN].append(attribute)
        if isinstance(callback, CSVLogger) and callback.csv_file is not None:
            state[_FILE_SIZE] = os.path.getsize(callback.filename)
        states[name] = state
    return states


def give_back(
    callbacks: Sequence[Callback], states: dict[str, Any], arrays: list[Array], given: Given
) -> None:
    """Give callbacks, whose training has begun, what they remembered.

    Args:
        callbacks: The callbacks of this worker.
        states: What ``state_of`` returned.
        arrays: Its arrays.
        given: What ``as_given`` found now before the training: settings that are other ones now stay so.
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
    """Have those that write into a file append to what it was then."""
    for name, callback in _named(callbacks):
        size = states.get(name, {}).get(_FILE_SIZE)
        if isinstance(callback, CSVLogger) and size is not None:
            callback.append = True
            with contextlib.suppress(FileNotFoundError):
                os.truncate(callback.filename, min(size, os.path.getsize(callback.filename)))


def _named(callbacks: Sequence[Callback]) -> Iterator[tuple[str, Callback]]:
    """The callbacks that remember something, each with the name of its class and its number among those."""
    seen: Counter[str] = Counter()
    for callback in callbacks:
        own = getattr(callback, "runs_for", callback)
        if getattr(own, "remembers", True):
            name = type(own).__name__
            yield f"{name} {seen[name]}", own
            seen[name] += 1
