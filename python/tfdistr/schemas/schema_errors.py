"""Errors from a schema: its descriptions are the rules, and its first examples are the fixes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tfdistr.errors import TfdistrError

if TYPE_CHECKING:
    from jsonschema import ValidationError

_MAX_SHOWN = 200

Refusal = TypeVar("Refusal", bound=TfdistrError)


def show(value: object) -> str:
    """Format any value for an error message: short and printable. It never fails."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        try:
            text = repr(value)
        except Exception:  # the code of the value can raise anything
            text = f"an object of class {type(value).__name__}"
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."


def field_name(path: Sequence[str | int], document: str) -> str:
    """Name a place in a document, such as "cluster.worker[1]"; the place without a path is the document."""
    steps = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    return "".join(steps).removeprefix(".") or document


def refusal(
    found: ValidationError, document: str, error: type[Refusal], *, with_document: bool = True
) -> Refusal:
    """Return the error for a rule of a schema that a document breaks.

    Args:
        found: The rule, and the value that breaks it.
        document: The name of the document.
        error: The class of the error.
        with_document: Whether the message names the document of a field.
    """
    path = tuple(found.absolute_path)
    schema: Any = found.schema
    instance: Any = found.instance
    field, received = f"`{field_name(path, document)}`", show(instance)
    if path and with_document:
        field += f" of {document}"
    if found.validator == "required":
        missing = next(name for name in schema["required"] if name not in instance)
        example = json.dumps({missing: schema["examples"][0][missing]})[1:-1]
        return error(f'{field} must have the member "{missing}".', received=received, fix=f"Add {example}.")
    fix = f"Write it like {json.dumps(schema['examples'][0])}."
    if found.validator == "const" and path == ("schema",):
        fix = "Read it with the version of tfdistr that wrote it."
    return error(f"{field} must be {schema['description']}.", received=received, fix=fix)
