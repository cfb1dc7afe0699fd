"""The texts of messages for R users: Python code in them becomes R code.

Messages are written once, with arguments and values in Python syntax. R shows the result of `in_r`.
"""

from __future__ import annotations

import ast
import functools
import json
import keyword
import logging
import re
import tomllib
from pathlib import Path

_CONSTANTS = {"None": "NULL", "True": "TRUE", "False": "FALSE", "nan": "NaN", "inf": "Inf"}
_NA = object()  # the value of the name NA, which stands for itself
#: The objects whose attributes messages name: R accesses them with "$".
_OBJECTS = "ctx|dataset|fit|keras|layer|loss|model|optimizer|self|strategy|tf|tfds"
#: The arguments whose parts messages name.
_DATA = "x|y|newdata|sample_weight|validation_data"
_WORDS = {"dictionary": "named list", "dictionaries": "named lists", "tuple": "list", "tuples": "lists"}
#: The classes of plain R values, as Python gets them.
_CLASSES = {
    "NoneType": "NULL",
    "bool": "logical",
    "dict": "list",
    "float": "numeric",
    "int": "integer",
    "str": "character",
}
_CLOSING = {"[": "]", "(": ")", "{": "}"}

#: Text about rows in Python's numbers, and such a number: "rows 1, 2, ... of the batch, row 0 of a file".
_COUNTED = re.compile(r"(.*)\(counted from 0\)")
_ROW = re.compile(r"(?<=\brow )\d+|(?<![\w./-])\d+(?=(?:, (?:\d+|\.\.\.))* of the (?:batch|data)\b)")

_PIECE = re.compile(
    rf"""
    pip\ install\ (?P<packages>(?:'[^']+'|"[^"]+"|[\w.-]+)(?:\ (?:'[^']+'|"[^"]+"|(?!or\b|and\b)[\w.-]+))*)
    | (?P<text>"(?:[^"\\]|\\.)*" | (?<!\w)'(?:[^'\\]|\\.)*'(?!\w))  # what is quoted stays as it is
    | with\ (?P<scope>[\w.]+\(\)):
    | \btfdistr\.(?=[a-z_]+\()
    | (?<![\w`.$])(?P<constant>None|True|False|(?:nan|inf)(?!\ ?=))\b
    | (?<![\w\-/?&.$])(?P<argument>[a-z]\w*)=(?![=\s,])
    | (?<![\w.$/])(?P<object>{_OBJECTS})(?P<attributes>(?:\.(?!keras\b)[A-Za-z]\w*)+)
    | (?<=\))(?P<method>\.)(?=[a-z_]+\()
    | (?<![\w.$])(?P<data>{_DATA})(?P<path>(?:\[(?:\d+|'[^'\]]*')\])+)
    | \b(?P<word>{"|".join(_WORDS)})\b
    | (?<=\ object\ of\ class\ )(?P<class>{"|".join(_CLASSES)})(?![\w.])
    | (?<![\w.])(?P<whole>-?\d+)\.0(?![\w.]*\d)
    """,
    re.VERBOSE,
)


def in_r(text: str) -> str:
    """Return the text of a message with its code in R syntax.

    Quoted text does not change, and neither do command options (``--name=value``) and the names of
    environment variables (``NAME=value``).

    Example:
        >>> print(in_r('Pass cluster=local_cluster(workers=2), or env={"A": "1"}.'))
        Pass cluster = local_cluster(workers = 2), or env = list(A = "1").
    """
    text = _COUNTED.sub(_counted_from_one, text)
    whole = _collection(text, 0)
    if whole and whole[1] == len(text):
        return whole[0]
    parts, at = [], 0
    while found := _PIECE.search(text, at):
        parts.append(text[at : found.start()])
        at = found.end()
        if found["packages"]:
            parts.append(_installation(found["packages"]))
        elif found["scope"]:
            parts.append(f"with({in_r(found['scope'])}, ...)")
        elif found["constant"]:
            parts.append(_CONSTANTS[found["constant"]])
        elif found["argument"]:
            parts.append(f"{found['argument']} = ")
            if collection := _collection(text, at):
                parts.append(collection[0])
                at = collection[1]
        elif found["object"]:
            parts.append(found[0].replace(".", "$"))
        elif found["method"]:
            parts.append("$")
        elif found["data"]:
            parts.append(found["data"] + re.sub(r"\[(?:(\d+)|'([^']*)')\]", _part, found["path"]))
        elif found["word"]:
            parts.append(_WORDS[found["word"]])
        elif found["class"]:
            parts.append(_CLASSES[found["class"]])
        elif found["whole"]:
            parts.append(found["whole"])
        else:
            parts.append(found["text"] or "")
    return "".join((*parts, text[at:]))


def _counted_from_one(found: re.Match[str]) -> str:
    """Return text about rows with R's numbers of these rows."""
    return _ROW.sub(lambda number: str(int(number[0]) + 1), found[1]) + "(counted from 1)"


def _part(found: re.Match[str]) -> str:
    """Return the access to a part of a list: by its name, or by its place, which R counts from 1."""
    name = found[2]
    if name is None:
        return f"[[{int(found[1]) + 1}]]"
    return f"${name}" if name.isidentifier() else f"$`{name}`"


def _installation(packages: str) -> str:
    """Return the call by which R installs Python packages: extras of tfdistr are in the R package's list."""
    names: list[str] = []
    for name in (match[0].strip("'\"") for match in re.finditer(r"'[^']+'|\"[^\"]+\"|\S+", packages)):
        extra = re.fullmatch(r"tfdistr\[(\w+)\]", name)
        names += _extras().get(extra[1], [name]) if extra else [name]
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"reticulate::py_install({quoted if len(names) == 1 else f'c({quoted})'})"


@functools.cache
def _extras() -> dict[str, list[str]]:
    """Return the packages of tfdistr's extras. The file is in the R package, and in the repository."""
    file = Path(__file__).parents[3] / "pyproject.toml"
    if not file.exists():
        return {}
    extras: dict[str, list[str]] = tomllib.loads(file.read_text())["project"]["optional-dependencies"]
    return extras


def log_in_r() -> None:
    """Show tfdistr's log of this process in R syntax. Call it in processes whose language is R."""
    log = logging.getLogger("tfdistr")
    if _record_in_r not in log.filters:
        log.addFilter(_record_in_r)


def _record_in_r(record: logging.LogRecord) -> bool:
    record.msg, record.args = in_r(record.getMessage()), None
    return True


def _collection(text: str, at: int) -> tuple[str, int] | None:
    """Return the list, tuple or dictionary at ``at`` in R syntax, and the position of its end."""
    if text[at : at + 1] not in _CLOSING:
        return None
    end = _end(text, at)
    try:
        value = ast.literal_eval(_WithNA().visit(ast.parse(text[at:end], mode="eval")))
    except (ValueError, SyntaxError, RecursionError, MemoryError):  # no value, or too deep for the parser
        inner = text[at + 1 : end - 1].rstrip(", ")
        return (f"list({in_r(inner)})", end) if at and text[at] != "{" else None
    return _value(value), end


class _WithNA(ast.NodeTransformer):
    """The transformation of the name NA to a constant."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_NA) if node.id == "NA" else node  # type: ignore[arg-type]


def _end(text: str, at: int) -> int:
    """Return the position after the bracket that closes the one at ``at``."""
    open_brackets: list[str] = []
    position = at
    while position < len(text):
        quoted = _PIECE.match(text, position)
        if quoted and quoted["text"]:
            position = quoted.end()
            continue
        if text[position] in _CLOSING:
            open_brackets.append(_CLOSING[text[position]])
        elif open_brackets and text[position] == open_brackets[-1]:
            open_brackets.pop()
            if not open_brackets:
                return position + 1
        position += 1
    return len(text)


def _value(value: object) -> str:
    """Return a value in R syntax."""
    if value is None or isinstance(value, bool):
        return _CONSTANTS[str(value)]
    if value is _NA:
        return "NA"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)
    if isinstance(value, dict):
        return f"list({', '.join(f'{_name(name)} = {_value(item)}' for name, item in value.items())})"
    if isinstance(value, list | tuple | set):
        kinds = {float if type(item) is int else type(item) for item in value if item is not _NA}
        function = "c" if len(kinds) == 1 and kinds <= {str, bool, float} else "list"
        return f"{function}({', '.join(map(_value, value))})"
    return repr(value)


def _name(name: object) -> str:
    text = str(name)
    return text if text.isidentifier() and not keyword.iskeyword(text) else json.dumps(text)
