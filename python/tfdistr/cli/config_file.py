"""The files of ``tfdistr run --config``: the options of a script, in TOML."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from tfdistr.cli.script_options import Script
from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import read_text
from tfdistr.utils.trusted_files import create_private

#: The names of the options, in the order of the file.
OPTIONS = tuple(
    sorted((field.name for field in attrs.fields(Script)), key=lambda name: (name == "env", name != "script"))
)
_HEAD = "# What `tfdistr run --config` reads. Flags of the command win over this file.\n"


def read_config(path: str) -> dict[str, Any]:
    """Read the options from a file.

    Raises:
        ArgumentError: The file cannot be read, is not TOML, or has an unknown option.
    """
    text = read_text(
        path,
        rule="`--config` must name a file that can be read.",
        fix="Write one with: tfdistr config --output job.toml",
    )
    try:
        options: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ArgumentError(
            "The file of `--config` must be TOML.",
            received=f"{path}: {error}",
            fix="Write it like: workers = 4",
        ) from error
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise ArgumentError(
            f"The options of a file are {', '.join(OPTIONS)}.",
            received=f"{unknown[0]} in {path}",
            fix="Correct the name, or remove it.",
        )
    return options


def write_config(path: str, options: Mapping[str, Any]) -> None:
    """Write options into a new file, which only this user can read: `env` may hold secrets.

    Raises:
        ArgumentError: The file exists, or cannot be written.
    """
    lines = [f"{name} = {_toml(options[name])}" for name in OPTIONS if name != "env" and name in options]
    if options.get("env"):
        lines += ["", "[env]", *(f"{_toml(name)} = {_toml(value)}" for name, value in options["env"].items())]
    try:
        if Path(path).exists():
            raise FileExistsError(0, "it exists")
        with create_private(path, "w") as file:
            file.write("\n".join([_HEAD, *lines, ""]))
    except OSError as error:
        raise ArgumentError(
            "`--output` must name a new file.", received=f"{path}: {error.strerror}", fix="Name another file."
        ) from error


def _toml(value: Any) -> str:
    """A value of an option as TOML: its text is as in JSON."""
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)
