"""The JSON Schemas of the documents that tfdistr writes and reads.

``docs/schemas.md`` lists the documents. Each schema describes the normal form of its document. R's jsonlite
can write the same document in other forms, such as a list of one value as a bare value. `normalise` converts
these forms into the normal form. In an error, the description of a schema is the rule, and its first example
is the fix.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from tfdistr.errors import ArgumentError, TfdistrError
from tfdistr.schemas.normal_form import normal_form

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator, ValidationError

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
    """Return the error for a rule of a schema that a document breaks."""
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


#: The documents; each has a file NAME.schema.json in this folder.
NAMES = ("tf_config", "job", "run", "event", "checkpoint", "trace", "training", "result")
_ARGUMENTS = "arguments"


def load_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a document, in one piece, which the caller may change."""
    if name not in NAMES:
        raise ArgumentError(
            "The name of a document must be one of " + ", ".join(f'"{known}"' for known in NAMES) + ".",
            received=repr(name),
            fix='Pass "result", for example.',
        )
    schema = _file(name)
    parts = schema.get("$defs", {})
    if _ARGUMENTS in parts:  # several documents have them
        parts[_ARGUMENTS] = _file(_ARGUMENTS)
    return schema


def _file(name: str) -> dict[str, Any]:
    path = resources.files("tfdistr") / "schemas" / f"{name}.schema.json"
    schema: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return schema


@cache
def schema_id(name: str) -> str:
    """Return the ``$id`` of a schema, with its version; documents carry it as the member "schema"."""
    return str(load_schema(name)["$id"])


@cache
def validator(name: str) -> Draft202012Validator:
    """Return the validator of a document."""
    from jsonschema import Draft202012Validator  # the import takes a tenth of a second

    return Draft202012Validator(load_schema(name))


def validate(name: str, document: object) -> None:
    """Check that a document is valid and in its normal form. An error names the field, its value, a fix."""
    found = next(validator(name).iter_errors(document), None)
    if found is not None:
        raise refusal(found, load_schema(name)["title"], ArgumentError)


def normalise(name: str, document: object) -> Any:
    """Convert a document into its normal form, from any form in which R's jsonlite writes it.

    Values without a normal form stay unchanged, so that `validate` can name them.

    Returns:
        A new document. Numbers that JSON does not have ("nan", "inf", "-inf") are floats in it.

    Example:
        >>> normalise("event", {"event": ["done"], "time": [5], "seconds": "2.5"})
        {'event': 'done', 'time': 5, 'seconds': 2.5}
    """
    load_schema(name)  # refuses other names
    return normal_form(validator(name), document)


def read(name: str, document: object) -> Any:
    """Return the normal form of a document, JSON text or not, which is valid."""
    if isinstance(document, str | bytes):
        document = _parsed(name, document)
    normal = normalise(name, document)
    validate(name, normal)
    return normal


def _parsed(name: str, text: str | bytes) -> object:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:  # also bytes that are not text
        raise ArgumentError(
            f"`{load_schema(name)['title']}` must be valid JSON: {error}.",
            received=show(text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text),
            fix="Write the whole document again.",
        ) from error


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is written as text")
