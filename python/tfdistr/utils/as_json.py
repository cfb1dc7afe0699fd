"""The conversion of values to JSON types."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def as_json(value: Any) -> Any:
    """Convert a value to JSON types: numbers, text, lists, objects.

    NumPy scalars, arrays and tensors become numbers and lists. NaN and the infinities become "nan", "inf" and
    "-inf". A value without a form in JSON becomes text.

    Example:
        >>> as_json({"loss": (0.5, float("nan"))})
        {'loss': [0.5, 'nan']}
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()  # lone surrogates could not be printed
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, Mapping):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if hasattr(value, "numpy"):  # a tensor or a variable
        return as_json(value.numpy())
    if hasattr(value, "tolist"):  # a NumPy array or scalar
        plain = value.tolist()
        if type(plain) is not type(value):  # tolist() of a bfloat16 returns the bfloat16
            return as_json(plain)
    try:
        return as_json(float(value))
    except (TypeError, ValueError):
        return as_json(str(value))
