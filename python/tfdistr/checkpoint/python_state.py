"""The state of a worker outside of TensorFlow: its callbacks, and the random numbers of each language.

The state of a callback is the numbers, text and arrays among its attributes. ``EarlyStopping``,
``ReduceLROnPlateau``, ``ModelCheckpoint``, ``WarmUp``, Keras's history and most user callbacks keep their
whole state there. If training has not changed a setting, the user's new value holds. The file of a
``CSVLogger`` is cut back to its length at the checkpoint.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from keras.callbacks import Callback, CSVLogger, TensorBoard

from tfdistr import tf_internals
from tfdistr.utils.interrupts import defer_sigint

Array = np.ndarray[Any, Any]

_NUMERIC = "biufc"


class NotPlainError(TypeError):
    """A value contains something that is no number, text or array."""


def to_plain(value: object, arrays: list[Array]) -> Any:
    """Convert a value to JSON, with its arrays apart in ``arrays``; NotPlainError for other values."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [to_plain(item, arrays) for item in value]
    if type(value) is tuple:
        return {"tuple": [to_plain(item, arrays) for item in value]}
    if type(value) is dict:
        return {"dict": [[to_plain(k, arrays), to_plain(v, arrays)] for k, v in value.items()]}
    kind = "scalar" if isinstance(value, np.generic) else "array"
    if tf.is_tensor(value) and hasattr(value, "numpy") and not isinstance(value, tf.Variable):
        value, kind = value.numpy(), "tensor"
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in _NUMERIC:
        raise NotPlainError(type(value).__name__)
    arrays.append(np.asarray(value))
    return {kind: len(arrays) - 1}


def from_plain(plain: object, arrays: list[Array]) -> Any:
    """Return the value from which ``to_plain`` made ``plain``."""
    if isinstance(plain, list):
        return [from_plain(item, arrays) for item in plain]
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "tuple":
        return tuple(from_plain(item, arrays) for item in content)
    if kind == "dict":
        return {from_plain(k, arrays): from_plain(v, arrays) for k, v in content}
    if kind == "tensor":
        return tf.constant(arrays[content])
    return arrays[content][()] if kind == "scalar" else np.array(arrays[content])


# Attributes of one call of fit, those that CSVLogger sets when it opens its file, and the number whose sign
# Keras changes if less is better.
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
    """Return snapshots of the callbacks, to detect later which settings training has changed."""
    copies: dict[str, dict[str, Copy]] = {}
    for name, callback in _by_name(callbacks):
        copies[name] = {}
        for attribute, value in vars(callback).items():
            with contextlib.suppress(NotPlainError):
                copies[name][attribute] = _copy(value)
    return copies


def _copy(value: object) -> Copy:
    arrays: list[Array] = []
    plain = repr(to_plain(value, arrays))
    return plain, [(a.dtype.name, a.shape, hashlib.sha256(a.tobytes()).digest()) for a in arrays]


def state_of(callbacks: Sequence[Callback], arrays: list[Array], given: Given) -> dict[str, Any]:
    """Return the state of the callbacks, by the name of each callback."""
    states = {}
    for name, callback in _by_name(callbacks):
        state: dict[str, Any] = {_AS_GIVEN: []}
        # A resuming process has not begun the trace that these attributes describe.
        left_out = _LEFT_OUT | (tf_internals.TRACE_IN_PROCESS if isinstance(callback, TensorBoard) else set())
        for attribute, value in vars(callback).items():
            if attribute in left_out:
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


def give_back(
    callbacks: Sequence[Callback], states: dict[str, Any], arrays: list[Array], given: Given
) -> None:
    """Restore the state of callbacks after training has begun; settings that the user has changed stay."""
    for name, callback in _by_name(callbacks):
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
    for name, callback in _by_name(callbacks):
        size = states.get(name, {}).get(_FILE_SIZE)
        if isinstance(callback, CSVLogger) and size is not None:
            callback.append = True
            with contextlib.suppress(FileNotFoundError):
                os.truncate(callback.filename, min(size, os.path.getsize(callback.filename)))


def _by_name(callbacks: Sequence[Callback]) -> Iterator[tuple[str, Callback]]:
    """Yield the callbacks that have state, each with the name of its class and its number in that class."""
    seen: Counter[str] = Counter()
    for callback in callbacks:
        own = getattr(callback, "runs_for", callback)
        if getattr(own, "remembers", True):
            name = type(own).__name__
            yield f"{name} {seen[name]}", own
            seen[name] += 1


_foreign: dict[str, tuple[Callable[[], str], Callable[[str], object]]] = {}


def keep_random_numbers(language: str, get: Callable[[], str], restore: Callable[[str], object]) -> None:
    """Add the random numbers of another language to checkpoints."""
    _foreign[language] = (defer_sigint(get), defer_sigint(restore))


def random_state(arrays: list[Array]) -> dict[str, Any]:
    """Return the states of the random numbers."""
    own = {
        "python": to_plain(random.getstate(), arrays),
        "numpy": to_plain(np.random.get_state(), arrays),
    }
    return own | {language: str(get()) for language, (get, _) in _foreign.items()}


def set_random_state(state: dict[str, Any], arrays: list[Array]) -> None:
    """Restore the states of the random numbers."""
    random.setstate(from_plain(state["python"], arrays))
    np.random.set_state(from_plain(state["numpy"], arrays))
    for language, (_, restore) in _foreign.items():
        if language in state:
            restore(state[language])
