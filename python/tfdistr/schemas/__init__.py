"""The JSON Schemas of the documents that tfdistr writes and reads.

``docs/schemas.md`` lists the documents. Each schema describes the normal form of its document. R's jsonlite
can write the same document in other forms, such as a list of one value as a bare value. `normalise` converts
these forms into the normal form.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NoReturn

from tfdistr.errors import ArgumentError, TfdistrError
from tfdistr.schemas.normal_form import normal_form
from tfdistr.schemas.schema_errors import refusal, show

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

__all__ = ["NAMES", "load_schema", "normalise", "read", "schema_id", "validate", "validator"]

#: The documents; each has a file NAME.schema.json in this folder.
NAMES = ("tf_config", "job", "run", "event", "checkpoint", "training", "result")
_ARGUMENTS = "arguments"


def load_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a document.

    Args:
        name: The name of the document, one of ``NAMES``.

    Returns:
        The schema, in one piece. The caller may change it.

    Raises:
        ArgumentError: There is no such document.

    Example:
        >>> load_schema("event")["$id"]
        'urn:tfdistr:event:1'
    """
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


def validate(name: str, document: Any, error: type[TfdistrError] = ArgumentError) -> None:
    """Check that a document is valid and in its normal form.

    Args:
        name: The name of the document, one of ``NAMES``.
        document: The document, as ``json.loads()`` returns it.
        error: The class of the error.

    Raises:
        ArgumentError: A rule of the schema is broken. The message names the field, its value, and the fix.

    Example:
        >>> validate("event", {"event": "ready", "time": 1700000000.0})
    """
    found = next(validator(name).iter_errors(document), None)
    if found is not None:
        raise refusal(found, load_schema(name)["title"], error)


def normalise(name: str, document: Any) -> Any:
    """Convert a document into its normal form, from any form in which R's jsonlite writes it.

    Values without a normal form stay unchanged, so that `validate` can name them.

    Args:
        name: The name of the document, one of ``NAMES``.
        document: The document, as ``json.loads()`` returns it.

    Returns:
        A new document. Numbers that JSON does not have ("nan", "inf", "-inf") are floats in it.

    Raises:
        ArgumentError: There is no such document.

    Example:
        >>> normalise("event", {"event": ["done"], "time": [5], "seconds": "2.5"})
        {'event': 'done', 'time': 5, 'seconds': 2.5}
    """
    load_schema(name)  # refuses other names
    return normal_form(validator(name), document)


def read(name: str, document: Any) -> Any:
    """Return the normal form of a document, which is valid.

    Args:
        name: The name of the document, one of ``NAMES``.
        document: The document as JSON text, or as ``json.loads()`` returns it.

    Raises:
        ArgumentError: It is not JSON, or a rule of the schema is broken. The message names the field, its
            value, and the fix.

    Example:
        >>> read("training", {"schema": "urn:tfdistr:training:1", "history": {"loss": 0.5}, "seconds": [1],
        ...                   "communication": "mpi"})["history"]
        {'loss': [0.5]}
    """
    if isinstance(document, str | bytes):
        document = _parsed(name, document)
    normal = normalise(name, document)
    validate(name, normal)
    return normal


def _parsed(name: str, text: str | bytes) -> Any:
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
