"""Python values in JSON and arrays, without pickle."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

Array = np.ndarray[Any, Any]

_NUMERIC = "biufc"


class NotPlainError(TypeError):
    """A value contains something that is no number, text or array."""


def to_plain(value: Any, arrays: list[Array]) -> Any:
    """Convert a value to the form of JSON.

    Args:
        value: Numbers, text, None, NumPy arrays and scalars, tensors; lists, tuples and dictionaries of them.
        arrays: List to which arrays and NumPy numbers are appended.

    Raises:
        NotPlainError: The value contains something else.
    """
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


def from_plain(plain: Any, arrays: list[Array]) -> Any:
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
