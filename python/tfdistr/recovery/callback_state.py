"""What callbacks remember: the numbers, text and arrays among their attributes.

``EarlyStopping``, ``ReduceLROnPlateau``, ``ModelCheckpoint``, ``WarmUp`` and Keras's history keep all they
know so, and so do most that users write. The file of a ``CSVLogger`` is cut back to what it was.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from keras.callbacks import Callback, CSVLogger

from .plain import Array, NotPlainError, from_plain, to_plain

# What belongs to a call of fit, what CSVLogger finds out when it opens its file, and the number whose sign
# Keras changes when it finds out whether less is better.
_LEFT_OUT = {"params", "append", "append_header", "min_delta"}
_FILE_SIZE = "tfdistr_file_size"


def state_of(callbacks: Sequence[Callback], arrays: list[Array]) -> dict[str, Any]:
    """What the callbacks remember, by the name of each.

    Args:
        callbacks: The callbacks of this worker.
        arrays: Arrays are appended to it.
    """
    states = {}
    for name, callback in _named(callbacks):
        state = {}
        for attribute, value in vars(callback).items():
            if attribute in _LEFT_OUT:
                continue
            found: list[Array] = []
            with contextlib.suppress(NotPlainError):
                to_plain(value, found)  # first see whether it is plain, all of it
                state[attribute] = to_plain(value, arrays)
        if isinstance(callback, CSVLogger) and callback.csv_file is not None:
            state[_FILE_SIZE] = os.path.getsize(callback.filename)
        states[name] = state
    return states


def give_back(callbacks: Sequence[Callback], states: dict[str, Any], arrays: list[Array]) -> None:
    """Give callbacks, whose training has begun, what they remembered."""
    for name, callback in _named(callbacks):
        for attribute, plain in states.get(name, {}).items():
            if attribute != _FILE_SIZE:
                setattr(callback, attribute, from_plain(plain, arrays))


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
