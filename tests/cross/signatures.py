"""The functions of R and Python as each language describes them, and how two descriptions differ.

Some differences are meant: signatures.json lists them, and signatures.schema.json says what an entry has.
"""

import inspect
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
from kinds import KINDS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
#: What begins an item of a list, in what signatures.R reads.
BULLET = "\u2022"
#: The value of an argument that has no default.
REQUIRED = "required"
#: Classes whose methods are compared: functions of tfdistr return their objects.
RESULTS = ("Comparison", "Diagnosis", "FitResult")

SCHEMA = json.loads((HERE / "signatures.schema.json").read_text())

Difference = dict[str, Any]


@dataclass(frozen=True)
class Described:
    """What one language says of a function.

    Attributes:
        arguments: The default of each argument, in order. "..." is where R has it. In Python it is after the
            arguments that may be given without a name, if others must be named or may have any name.
        sentence: The first sentence of the documentation.
        errors: The documented errors: their classes in Python.
        any_name: Whether Python takes arguments of any name.
        of_generic: Whether R has "..." because the generic function of this method has it.
    """

    arguments: Mapping[str, Any]
    sentence: str
    errors: frozenset[str] = frozenset()
    any_name: bool = False
    of_generic: bool = False


# --- How two descriptions differ


def differences(name: str, r: Described, python: Described) -> list[Difference]:
    """The differences of a function, in the form of the table, without reasons."""
    found = _of_arguments(*_dots_that_count(python, r))
    if _plain(r.sentence) != _plain(python.sentence):
        found.append({"what": "sentence", "r": r.sentence, "python": python.sentence})
    found += [{"what": "error", "r": kind} for kind in sorted(r.errors - python.errors)]
    found += [{"what": "error", "python": kind} for kind in sorted(python.errors - r.errors)]
    return [{"of": name, **one} for one in found]


def _dots_that_count(python: Described, r: Described) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments, without a "..." that the other language need not have."""
    of_python, of_r = dict(python.arguments), dict(r.arguments)
    if "..." not in of_r and not python.any_name:
        of_python.pop("...", None)  # R may take by its place what Python takes by its name
    if "..." not in of_python and r.of_generic:
        of_r.pop("...", None)
    return of_python, of_r


def _of_arguments(python: Mapping[str, Any], r: Mapping[str, Any]) -> list[Difference]:
    in_both = [[name for name in one if name in other] for one, other in ((r, python), (python, r))]
    found: list[Difference] = []
    if in_both[0] != in_both[1]:
        found.append({"what": "order", "r": in_both[0], "python": in_both[1]})
    else:
        found += _of_names(list(python), list(r))
    renamed = {one["r"]: one["python"] for one in found if one["what"] == "argument" and len(one) == 3}
    for name, default in r.items():
        other = python.get(renamed.get(name, name), default)
        if not _same(default, other):
            values = json.loads(json.dumps({"r": default, "python": other}))
            found.append({"what": "default", "argument": name, **values})
    return found


def _of_names(python: list[str], r: list[str]) -> list[Difference]:
    """The arguments that one language has; in one place, as many of each are other names of the same."""
    found: list[Difference] = []
    for what, first, end, begin, stop in SequenceMatcher(None, r, python, autojunk=False).get_opcodes():
        if what == "replace" and end - first == stop - begin:
            pairs = zip(r[first:end], python[begin:stop], strict=True)
            found += [{"what": "argument", "r": one, "python": other} for one, other in pairs]
        elif what != "equal":
            found += [{"what": "argument", "r": name} for name in r[first:end]]
            found += [{"what": "argument", "python": name} for name in python[begin:stop]]
    return found


def _same(r: Any, python: Any) -> bool:
    """Whether two defaults are the same: TRUE is no 1, and a vector is a tuple or a list."""
    if isinstance(r, list | tuple) and isinstance(python, list | tuple):
        return len(r) == len(python) and all(map(_same, r, python))
    return isinstance(r, bool) == isinstance(python, bool) and bool(r == python)


def _plain(sentence: str) -> str:
    """A sentence without its full stop: titles have none. In a list, it begins after the function's name."""
    text = sentence.rstrip(".")
    return text[:1].lower() + text[1:]


# --- What Python says


def of_python(function: Callable[..., Any] | property) -> Described:
    """What Python says of a function, a class or a property."""
    called = function.fget if isinstance(function, property) else function
    assert called is not None
    document = inspect.getdoc(function) or ""
    _, _, raises = document.partition("\nRaises:\n")
    errors = re.findall(r"^ {4}(\w+):", raises.partition("\n\n")[0], re.MULTILINE)
    parameters = inspect.signature(called).parameters.values()
    return Described(
        _in_order(parameters), first_sentence(document), frozenset(errors),
        any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters),
    )  # fmt: skip


def _in_order(parameters: Iterable[inspect.Parameter]) -> dict[str, Any]:
    by_place: dict[str, Any] = {}
    by_name: dict[str, Any] = {}
    any_name = False
    for parameter in parameters:
        default = REQUIRED if parameter.default is parameter.empty else parameter.default
        if parameter.kind is parameter.VAR_KEYWORD:
            any_name = True
        elif parameter.kind is parameter.KEYWORD_ONLY:
            by_name[parameter.name] = default
        elif parameter.name not in ("self", "cls"):
            by_place[parameter.name] = default
    between = {"...": REQUIRED} if by_name or any_name else {}
    return {**by_place, **between, **by_name}


def first_sentence(text: str) -> str:
    """The first sentence of a text, with its code in single backticks."""
    words = " ".join(text.partition("\n\n")[0].replace("``", "`").split())
    return re.split(r"(?<=\.)\s", words)[0]


def python_names(module: ModuleType) -> list[str]:
    """The names of tfdistr that are compared: functions, classes, methods of results."""
    names = [*module.__all__, "testing.assert_same_fit"]
    for result in RESULTS:
        kinds = [kind for kind in getattr(module, result).__mro__ if kind.__module__.startswith("tfdistr.")]
        members = {name: member for kind in reversed(kinds) for name, member in vars(kind).items()}.items()
        methods = [name for name, value in members if callable(value) or isinstance(value, classmethod)]
        names += [f"{result}.{name}" for name in methods if not name.startswith("_")]
    return names


# --- What R says


def read_r() -> dict[str, Any]:
    """What R says of its functions and conditions: see signatures.R."""
    ended = subprocess.run(
        ["Rscript", str(HERE / "signatures.R"), str(ROOT / "man"), *KINDS],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    said: dict[str, Any] = json.loads(ended.stdout)
    return said


def of_r(name: str, said: Mapping[str, Any], *, is_method: bool) -> Described:
    """What R says of a function.

    Args:
        name: The function, such as "doctor" or "predict.tfdistr_fit".
        said: What `read_r` returned.
        is_method: Whether it is a method in Python, where its first argument is "self".
    """
    of_generic = name in said["methods"]
    listed = said["methods" if of_generic else "exports"][name]
    arguments = {one["name"]: one.get("default", REQUIRED) for one in listed}
    if is_method:
        del arguments[next(iter(arguments))]
    pages = [page for page in said["pages"] if name in page["aliases"]]
    assert len(pages) == 1, f"{name} must be on one page of man/, and is on {len(pages)}"
    page = pages[0]
    called = name.partition(".tfdistr_")[0]
    title = page["title"] if page["name"] in (name, called) else ""
    sentence = part_of(called, page["description"], title) or title
    kinds = re.findall(r"`tfdistr_error_(\w+)`", part_of(called, page["errors"], page["errors"]))
    found = frozenset(KINDS.get(kind, kind) for kind in kinds)
    return Described(arguments, first_sentence(sentence.strip()), found, of_generic=of_generic)


def conditions_of_r(said: Mapping[str, Any]) -> set[str]:
    """The kinds of errors that R's code raises itself, or that R's documentation names."""
    code = "".join(path.read_text() for path in sorted((ROOT / "R").glob("*.R")))
    documented = "".join(page["errors"] for page in said["pages"])
    raised = re.findall(r'\babort\(\s*"(\w+)"', code) + re.findall(r'"tfdistr_error_(\w+)"', code)
    named = re.findall(r"`tfdistr_error_(\w+)`", documented)
    return {*raised, *named, *(["error"] if "`tfdistr_error`" in documented else [])}


def part_of(function: str, text: str, otherwise: str) -> str:
    """What a text says of one function.

    Args:
        function: Its name.
        text: The text. A list in it may have an item for each function: "`distribute()`: gives ...".
        otherwise: The result if the text has no such list.
    """
    begin = re.compile(r"((?:`[\w.]+\(\)`(?:, | and )?)+): ")
    parts = [" ".join(part.split()) for part in text.split(BULLET)]
    items = [(found[1], part[found.end() :]) for part in parts if (found := begin.match(part))]
    of_function = [said for names, said in items if f"`{function}()`" in names]
    return of_function[0] if of_function else "" if items else otherwise


# --- Both


def all_differences(
    module: ModuleType, said: Mapping[str, Any], entries: Iterable[Difference]
) -> list[Difference]:
    """The differences of the two packages.

    Args:
        module: The package of Python.
        said: What `read_r` returned.
        entries: The table; it has the pairs of functions with other names in each language.
    """
    in_r = {*said["exports"], *said["methods"]}
    in_python = python_names(module)
    pairs = {name: name for name in in_python if name in in_r} | twins(entries)
    known = conditions_of_r(said)
    conditions = {name for kind, name in KINDS.items() if kind in known}
    found = [{"what": "name", "r": name, "python": other} for other, name in pairs.items() if other != name]
    found += [{"what": "name", "r": name} for name in sorted(in_r - set(pairs.values()))]
    found += [{"what": "name", "python": name} for name in in_python if name not in {*pairs, *conditions}]
    found += [{"what": "error", "r": kind} for kind in sorted(known - KINDS.keys())]
    for other, name in pairs.items():
        is_method = other.rpartition(".")[0] not in ("", "testing")
        found += differences(
            other, of_r(name, said, is_method=is_method), of_python(attrgetter(other)(module))
        )
    return found


# --- The table of the differences that are meant


@cache
def table() -> tuple[Difference, ...]:
    """The differences that are meant."""
    entries = json.loads((HERE / "signatures.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(entries)
    return tuple(entries)


def twins(entries: Iterable[Difference]) -> dict[str, str]:
    """The name in R of each function of Python that has another name there."""
    names = [one for one in entries if one["what"] == "name"]
    return {one["python"]: one["r"] for one in names if {"r", "python"} <= one.keys()}


def without_row(language: str) -> set[str]:
    """The functions of a language for which tests/cross/rows has no call."""
    return {one[language] for one in table() if one.get("row") is False and language in one}


def is_listed(found: Difference, entry: Difference) -> bool:
    """Whether a difference is the one of an entry; "print.*" is any name that begins with "print."."""
    wanted = {key: value for key, value in entry.items() if key not in ("why", "row")}
    if found["what"] != "name":
        return json.dumps(found, sort_keys=True) == json.dumps(wanted, sort_keys=True)  # True is no 1
    return found.keys() == wanted.keys() and all(_is_named(found[key], wanted[key]) for key in found)


def _is_named(name: str, pattern: str) -> bool:
    return name == pattern or (pattern.endswith(".*") and name.startswith(pattern[:-1]))


def not_in(entries: Iterable[Difference], found: Iterable[Difference]) -> list[Difference]:
    """The differences that no entry lists."""
    entries = list(entries)
    return [one for one in found if not any(is_listed(one, entry) for entry in entries)]


def not_needed(entries: Iterable[Difference], found: Iterable[Difference]) -> list[Difference]:
    """The entries that list no difference."""
    found = list(found)
    return [entry for entry in entries if not any(is_listed(one, entry) for one in found)]
