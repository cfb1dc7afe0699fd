"""The files of ``tfdistr run --config``: the options of a script, in TOML."""

from __future__ import annotations

import tomllib
from typing import Any

import attrs

from tfdistr.cli.script_options import Script
from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import read_text

#: The names of the options.
OPTIONS = tuple(field.name for field in attrs.fields(Script))


def read_config(path: str) -> dict[str, Any]:
    """Read the options from a file.

    Raises:
        ArgumentError: The file cannot be read, is not TOML, or has an unknown option.
    """
    text = read_text(
        path,
        rule="`--config` must name a file that can be read.",
        fix="Write a file with lines such as: workers = 4",
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
