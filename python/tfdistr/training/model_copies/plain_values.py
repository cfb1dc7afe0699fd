"""Values of attributes that any process can have, and what makes two of them equal."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from pathlib import PurePath
from types import CellType, FunctionType
from typing import Any

import keras
import numpy as np
import tensorflow as tf

_ATOMS = (
    bool, int, float, complex, str, bytes, type(None), enum.Enum, PurePath, np.generic, np.dtype, tf.DType,
)  # fmt: skip
_SHOWN = 60  # characters


def is_plain(value: object) -> bool:
    """Return whether a value is a number, text, or lists and dictionaries of such."""
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(is_plain, value))
    if isinstance(value, dict):
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    return isinstance(value, _ATOMS)


def untracked(value: object) -> object:
    """Return a plain value whose containers are Python's own. Those of Keras layers cannot be unpickled."""
    if isinstance(value, dict):
        return {key: untracked(part) for key, part in value.items()}
    if isinstance(value, list | set | frozenset) or type(value) is tuple:
        kind = next(kind for kind in (list, set, frozenset, tuple) if isinstance(value, kind))
        return kind(map(untracked, value))
    return value


def same_plain(there: object, here: object, names: Mapping[str, str]) -> bool:
    """Return whether two plain values are equal. Configurations turn tuples into lists."""
    if isinstance(there, list | tuple) and isinstance(here, list | tuple):
        return len(there) == len(here) and all(
            same_plain(a, b, names) for a, b in zip(there, here, strict=True)
        )
    if isinstance(there, dict) and isinstance(here, dict):
        return len(there) == len(here) and all(
            key in here and same_plain(value, here[key], names) for key, value in there.items()
        )
    if isinstance(there, str) and isinstance(here, str) and there != here:
        return any(there.replace(name, copy) == here for name, copy in names.items() if name in there)
    both_nan = all(isinstance(value, float | np.floating) and math.isnan(value) for value in (there, here))
    return both_nan or bool(there == here)


def is_symbolic(value: object) -> bool:
    """Return whether a value is a tensor of a trace, which has no value."""
    traced = isinstance(value, tf.Tensor) and not hasattr(value, "numpy")
    return traced or isinstance(value, keras.KerasTensor)


def as_array(value: object) -> np.ndarray | None:
    """Return the values of an array, a tensor or a variable; None for other values."""
    if isinstance(value, np.ndarray):
        return None if value.dtype.hasobject else value
    if isinstance(value, tf.Tensor | tf.Variable | keras.Variable) and not is_symbolic(value):
        return array_of(value)
    return None


def array_of(value: object) -> np.ndarray:
    """Return the value of a tensor or a variable."""
    held = value.value if isinstance(value, keras.Variable) else value
    array: np.ndarray = tf.convert_to_tensor(held).numpy()
    return array


def same_array(there: np.ndarray, here: np.ndarray | None) -> bool:
    """Return whether two arrays are bitwise identical."""
    if here is None or there.dtype != here.dtype or there.shape != here.shape:
        return False
    if there.dtype.hasobject:  # text
        return bool(np.array_equal(there, here))
    a, b = (np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in (there, here))
    return np.array_equal(a, b)


def same_function(there: object, here: object) -> bool:
    """Return whether two functions or classes have the same code and the same captured values."""
    if there is here:
        return True
    there, here = getattr(there, "__func__", there), getattr(here, "__func__", here)
    if not (isinstance(there, FunctionType) and isinstance(here, FunctionType)):
        return getattr(there, "__qualname__", None) == getattr(here, "__qualname__", 0)
    captured = [[*(f.__defaults__ or ()), *_contents(f)] for f in (there, here)]
    pairs = zip(*captured, strict=False)
    plain = all(not (is_plain(a) and is_plain(b)) or same_plain(a, b, {}) for a, b in pairs)
    return there.__code__ == here.__code__ and plain


def _contents(function: FunctionType) -> list[object]:
    not_set = CellType()
    return [None if cell == not_set else cell.cell_contents for cell in function.__closure__ or ()]


def shown(value: Any) -> str:
    """Return a value as a short text for a message."""
    if isinstance(value, keras.DTypePolicy):
        return repr(value.name)
    array = None if is_plain(value) else as_array(value)
    if array is not None:
        text = " ".join(np.array2string(array, threshold=6, precision=6).split())
        return f"{type(value).__name__} {text}" if len(text) < _SHOWN else f"an array of shape {array.shape}"
    if isinstance(value, keras.Operation):
        return f"{type(value).__name__} {value.name!r}"
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__qualname__}()"
    if is_plain(value):
        return repr(value) if len(repr(value)) <= _SHOWN else f"{repr(value)[:_SHOWN]}..."
    is_list = isinstance(value, list | tuple | dict)
    return f"{len(value)} items" if is_list else f"an object of {type(value).__qualname__}"
