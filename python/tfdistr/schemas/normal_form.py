"""The normal form of a document, from all forms in which R's jsonlite writes it.

jsonlite writes a list of one value as a bare value (``auto_unbox = TRUE``), or a value as a list of one
(``auto_unbox = FALSE``). It writes NULL as null or {}, NA as null or "NA", and an empty list as []. It leaves
NA out of the rows of a data frame. Numbers become text when it reads them in one vector with "nan".

The schema decides what a value means: the first type of a field is its normal form. A value is converted to
it if the meaning is clear; any other value stays. `as_json` makes the normal form of Python values.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator


_NOTHING: tuple[object, ...] = (None, {}, [], "NA")
_WHOLE = re.compile(r"-?[0-9]{1,15}\Z")
_NUMBER = re.compile(r"(-?[0-9.]+([eE][-+]?[0-9]+)?|nan|-?inf)\Z", re.IGNORECASE)
#: The types of a number that need not be finite.
_ANY_NUMBER = ["number", "string"]


def normal_form(validator: Draft202012Validator, value: Any, schema: Any = None) -> Any:
    """Convert a value to the normal form that a part of the validator's schema, or all of it, describes."""
    schema = validator.schema if schema is None else schema
    if "$ref" in schema:
        value = normal_form(validator, value, _part(validator, schema["$ref"]))
    if "type" in schema:
        value = _converted(value, _types(validator, schema))
    if isinstance(value, dict):
        value = _members(validator, value, schema)
    elif isinstance(value, list):
        value = _items(validator, value, schema)
    for part in schema.get("allOf", ()):
        value = normal_form(validator, value, part)
    if "if" in schema:
        branch = "then" if validator.evolve(schema=schema["if"]).is_valid(value) else "else"
        if branch in schema:
            value = normal_form(validator, value, schema[branch])
    return value


def _part(validator: Draft202012Validator, reference: str) -> Any:
    """Return the part of a schema that "#/$defs/name" refers to."""
    part: Any = validator.schema
    for step in reference.removeprefix("#/").split("/"):
        part = part[step]
    return part


def _converted(value: object, types: list[str]) -> Any:
    """Convert a value to the first of ``types``, if its meaning is clear."""
    if types[0] == "array":
        return [] if value in (None, {}) else value if isinstance(value, list) else [value]
    # One value of a metric, or the only one of several, is a number.
    if isinstance(value, list) and len(value) == 1 and ("array" not in types or types[:2] == _ANY_NUMBER):
        return _converted(value[0], types)
    if "null" in types and value in _NOTHING:
        return None
    if types[0] == "object":
        value = {} if value == [] else value
    elif types[:2] == _ANY_NUMBER and value in _NOTHING:
        return math.nan
    elif isinstance(value, str) and types[0] in ("integer", "number"):
        return _number(value, whole=types[0] == "integer")
    if types[0] == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _number(text: str, *, whole: bool) -> Any:
    """Return the number in a text; the text itself if it has none."""
    if _WHOLE.match(text):
        return int(text)
    if not whole and _NUMBER.match(text):
        with contextlib.suppress(ValueError):  # of text such as "1.2.3"
            return float(text)
    return text


def _members(validator: Draft202012Validator, members: dict[str, Any], schema: Any) -> dict[str, object]:
    known = schema.get("properties", {})
    others = schema.get("additionalProperties", {})
    required = schema.get("required", ())
    normal = {
        name: normal_form(validator, value, known.get(name, others))
        for name, value in members.items()
        if name in required or not _left_out(value, _types(validator, known.get(name, {})))
    }
    for name in required:
        if name not in normal and "null" in _types(validator, known.get(name, {})):
            normal[name] = None
    return normal


def _left_out(value: Any, types: Any) -> bool:
    """Return whether an optional member's value means that it is missing, as in rows of a data frame."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value in (None, {}, "NA") and bool(types) and not {"null", "array", "object"} & set(types)


def _types(validator: Draft202012Validator, schema: Any) -> list[str]:
    while "$ref" in schema:
        schema = _part(validator, schema["$ref"])
    types = schema.get("type", [])
    return types if isinstance(types, list) else [types]


def _items(validator: Draft202012Validator, items: list[Any], schema: Any) -> object:
    first, others = schema.get("prefixItems", []), schema.get("items", {})
    rules = [*first, *[others] * (len(items) - len(first))]
    normal = [normal_form(validator, item, rule) for item, rule in zip(items, rules, strict=False)]
    boxed = schema.get("minItems") == schema.get("maxItems") == 1
    return normal[0] if boxed and len(normal) == 1 else normal


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
