"""Options of commands: a field of an attrs class declares its flag and its key of TOML files."""

from __future__ import annotations

import argparse
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import attrs

from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import read_text


def option(
    check: Callable[..., object] | None = None, *limits: object, help: str, default: object = None,
    repr: bool = True,
    metavar: str | None = None, also: Sequence[str] = (), action: str | None = None,
    positional: Mapping[str, object] | None = None, **more_limits: object,
) -> Any:  # fmt: skip
    """Make a field that is a flag, a key of TOML files and an argument in R; ``check`` converts its value."""
    settings = {"metavar": metavar, "also": also, "action": action, "positional": positional}
    flag = {"help": help, **{name: value for name, value in settings.items() if value is not None}}
    metadata: dict[str, Any] = {"flags": [flag]}
    if check is not None:
        metadata["check"] = lambda name, value: check(name, value, *limits, **more_limits)
    return attrs.field(default=default, repr=repr, metadata=metadata)


def with_checks(_: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """Let the check of each option convert its value."""

    def checked(field: attrs.Attribute[Any]) -> attrs.Attribute[Any]:
        check = field.metadata.get("check")
        return field if check is None else field.evolve(converter=partial(check, field.name))

    return list(map(checked, fields))


#: The flag of a field by its annotation.
_OF_TYPE: dict[str, dict[str, object]] = {
    "bool": {"action": "store_true"},
    "float": {"type": float, "metavar": "SECONDS"},
    "int": {"type": int, "metavar": "N"},
    "Sequence[str]": {"type": lambda text: text.split(",")},
}


class _Merges(argparse.Action):
    """Collects variables."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
        option_string: str | None = None,
    ) -> None:  # fmt: skip
        setattr(namespace, self.dest, {**getattr(namespace, self.dest, {}), **values})


def _variable(text: str) -> dict[str, str]:
    """Read NAME=VALUE, or NAME with the value that it has in this process."""
    name, sign, value = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError("it takes NAME or NAME=VALUE, such as --env OMP_NUM_THREADS=1")
    if not sign and name not in os.environ:
        raise argparse.ArgumentTypeError(f"{name} takes the value of this environment, which has no {name}")
    return {name: value if sign else os.environ[name]}


def _variables(path: str) -> dict[str, str]:
    """Read the variables of a file. No error shows a value."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", "no UTF-8")
        raise argparse.ArgumentTypeError(f"{path} cannot be read ({reason})") from error
    found = {}
    for number, line in enumerate(lines, 1):
        name, sign, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not sign or not name.strip():
            raise argparse.ArgumentTypeError(f"line {number} of {path} has another form than NAME=VALUE")
        found[name.strip()] = value
    return found


#: The two flags of a field with environment variables.
ENV = {"flags": [
    {"action": _Merges, "type": _variable, "metavar": "NAME[=VALUE]",
     "help": "an environment variable for the workers; repeat it. Other users can read a command line: for a "
             "secret, leave out the value, and it is that of this environment"},
    {"name": "env_file", "action": _Merges, "type": _variables, "metavar": "FILE",
     "help": "a file with a line NAME=VALUE for each variable"},
]}  # fmt: skip


def add_flag(
    parser: argparse.ArgumentParser, name: str, *also: str, unlisted: Sequence[str] = (), **settings: Any
) -> None:
    """Add a flag, with dashes or underscores in its name; help does not list ``unlisted`` spellings."""
    flag = f"--{name.replace('_', '-')}"
    settings.setdefault("dest", name)
    parser.add_argument(*also, flag, **settings)
    others = [*unlisted, *([f"--{name}"] if "_" in name else [])]
    if others:
        parser.add_argument(*others, **{**settings, "help": argparse.SUPPRESS})


def add_flags(parser: argparse.ArgumentParser, options: type) -> None:
    """Add the flags that the fields of an attrs class declare."""
    for field in attrs.fields(options):
        for declared in field.metadata.get("flags", ()):
            kind = field.type.__name__ if isinstance(field.type, type) else str(field.type)
            settings = {**_OF_TYPE.get(kind.removesuffix(" | None"), {}), **declared}
            name, also = settings.pop("name", field.name), settings.pop("also", ())
            if "positional" in settings:
                parser.add_argument(name, help=settings["help"], **settings["positional"])
                continue
            if isinstance(field.default, int | float) and "action" not in settings:
                settings["help"] += f" (default: {field.default:g})"
            add_flag(parser, name, *also, dest=field.name, **settings)


def given_flags(parsed: argparse.Namespace, options: type) -> dict[str, Any]:
    """The options of an attrs class that the command line gives."""
    values = {field.name: getattr(parsed, field.name, None) for field in attrs.fields(options)}
    return {name: value for name, value in values.items() if value is not None and value != []}


def read_options(path: str, options: type) -> dict[str, Any]:
    """Read the options of an attrs class from a TOML file."""
    text = read_text(
        path,
        rule="`--config` must name a file that can be read.",
        fix="Write a file with lines such as: workers = 4",
    )
    try:
        found: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(
            "The file of `--config` must be TOML.",
            received=f"{path}: {error}",
            fix="Write it like: workers = 4",
        ) from error
    names = [field.name for field in attrs.fields(options)]
    unknown = [name for name in found if name not in names]
    if unknown:
        raise ArgumentError(
            f"The options of a file are {', '.join(names)}.",
            received=f"{unknown[0]} in {path}",
            fix="Correct the name, or remove it.",
        )
    return found
