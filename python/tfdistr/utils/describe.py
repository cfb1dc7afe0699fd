"""Descriptions of values for errors."""

from __future__ import annotations

import json
import types
from dataclasses import dataclass
from typing import Any

import attrs

_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)


@dataclass(frozen=True)
class ValueOfR:
    """An R value that Python does not have, such as NA, in the place of an argument.

    It is of no type that an argument may have. So each check refuses it, with its own rule.

    Args:
        words: What the value is, for the error.
    """

    words: str

    def __repr__(self) -> str:
        return self.words


def describe(value: object) -> str:
    """Describe a value, for the error that it is of the wrong kind.

    Example:
        >>> print(describe(4.0), describe("a"), describe([1, 2]), describe(print), sep="; ")
        a number (4.0); a text ('a'); a list of length 2; a function
    """
    if value is None or isinstance(value, bool | ValueOfR):
        return str(value)
    if isinstance(value, int | float | complex):
        return f"a number ({value!r})"
    if isinstance(value, str):
        return f"a text ({value if len(value) <= 40 else value[:37] + '...'!r})"
    if isinstance(value, list | tuple | dict):
        return f"a {'dictionary' if isinstance(value, dict) else 'list'} of length {len(value)}"
    if isinstance(value, _FUNCTIONS):
        return "a function"
    if isinstance(value, type):
        return f"the class {value.__module__}.{value.__qualname__}"
    module = "" if type(value).__module__ == "builtins" else f"{type(value).__module__}."
    return f"an object of class {module}{type(value).__name__}"


def number_of(number: int, what: str) -> str:
    """Return a number of things in words, such as "1 worker"."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def call_text(name: str, options: Any) -> str:
    """Return the call that makes an attrs object with options, without those that have their defaults."""
    fields = attrs.fields(type(options))
    given = {field.name: getattr(options, field.name) for field in fields}
    words = [
        f"{field.name}={value_text(given[field.name])}"
        for field in fields
        if given[field.name] != field.default
    ]
    return f"{name}({', '.join(words)})"


def value_text(value: object) -> str:
    """Return a value as it is written in a call; "..." for an object that has no short form."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, bool | int | float):
        return repr(value)
    if isinstance(value, list | tuple) and len(value) <= 8:
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, dict) and len(value) <= 8:
        return "{" + ", ".join(f"{value_text(key)}: {value_text(item)}" for key, item in value.items()) + "}"
    return "..."
