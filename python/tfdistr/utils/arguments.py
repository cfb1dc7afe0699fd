"""Checks of arguments that come from Python or from R, where every number is a double."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from tfdistr.errors import ArgumentError
from tfdistr.utils.describe import describe

#: The backends of the collectives.
COMMUNICATION = ("auto", "ring", "nccl", "mpi")
#: The data types in which gradients can be sent.
GRADIENT_DTYPES = ("float32", "bfloat16")


def check_int(name: str, value: Any, *, minimum: int = 1, maximum: float = math.inf) -> int:
    """Return ``value`` as an int, if it is a whole number within the limits (2.0 is valid, True is not)."""
    number = whole_number(value)
    if number is None or not minimum <= number <= maximum:
        limits = f"of at least {minimum}" if maximum == math.inf else f"from {minimum} to {maximum}"
        raise ArgumentError(
            f"`{name}` must be a whole number {limits}.",
            received=describe(value) if callable(value) else repr(value),
            fix=f"Pass {name}={max(minimum, 1)}, for example.",
        )
    return number


def whole_number(value: Any) -> int | None:
    """Return a number as an int, if it is whole (2.0 is, True is not); otherwise None."""
    try:
        number = int(value)
        return number if not isinstance(value, bool | str) and number == value else None
    except (TypeError, ValueError, OverflowError):
        return None


def check_optional_int(name: str, value: object, *, minimum: int = 1) -> int | None:
    """Do the same as ``check_int``, but allow None."""
    return None if value is None else check_int(name, value, minimum=minimum)


def check_positive(name: str, value: object, *, of: str = "", example: str = "0.1") -> float:
    """Return ``value`` as a float, if it is above 0; ``of`` is the error's unit, such as " of seconds"."""
    number = as_number(value)
    if not 0 < number < math.inf:
        raise ArgumentError(
            f"`{name}` must be a number{of} above 0.",
            received=repr(value),
            fix=f"Pass {name}={example}, for example.",
        )
    return number


def check_fraction(name: str, value: object) -> float:
    """Return ``value`` as a float, if it is a number from 0 up to, but not 1."""
    number = as_number(value)
    if not 0 <= number < 1:
        raise ArgumentError(
            f"`{name}` must be a number from 0 to below 1.", received=repr(value), fix=f"Pass {name}=0.2."
        )
    return number


def as_number(value: Any) -> float:
    """Return a number as a float; NaN for anything else."""
    try:
        return math.nan if isinstance(value, bool | str) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """Return ``value``, if it is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        raise ArgumentError(
            f"`{name}` must be one of {', '.join(map(repr, choices))}.",
            received=repr(value),
            fix=f"Use {name}={choices[0]!r}.",
        )
    return value


def check_bool(name: str, value: object) -> bool:
    """Return ``value``, if it is True or False."""
    if not isinstance(value, bool):
        raise ArgumentError(
            f"`{name}` must be true or false.", received=repr(value), fix=f"Pass {name}=True."
        )
    return value


def check_optional_path(name: str, value: object) -> str | os.PathLike[str] | None:
    """Return ``value``, if it is None or the path of a file or folder."""
    if value is None or (isinstance(value, str | os.PathLike) and value != ""):
        return value
    raise ArgumentError(
        f"`{name}` must be a path.", received=repr(value), fix=f'Pass {name}="results", for example.'
    )


def check_text(
    name: str, value: object, form: re.Pattern[str], *, rule: str, fix: str, longest: float = math.inf
) -> str | None:
    """Return ``value``, if it is None or a text of this form; ``rule`` says what it must be."""
    if value is None or (isinstance(value, str) and form.fullmatch(value) and len(value) <= longest):
        return value
    raise ArgumentError(f"`{name}` must be {rule}.", received=describe(value), fix=fix)


def check_seconds(name: str, value: object, *, example: str = "60.0") -> float:
    """Return ``value`` as a float, if it is a number of seconds above 0."""
    return check_positive(name, value, of=" of seconds", example=example)


def check_optional_seconds(name: str, value: object) -> float | None:
    """Do the same as ``check_seconds``, but allow None."""
    return None if value is None else check_seconds(name, value)


def argument(
    check: Callable[..., object],
    name: str,
    *limits: object,
    default: object,
    hidden: bool = False,
    **more_limits: object,
) -> Any:
    """Make a field of an attrs class for a user argument, which ``check`` checks and converts."""
    return attrs.field(
        default=default,
        converter=lambda value: check(name, value, *limits, **more_limits),
        metadata={"hidden": hidden},
    )


def read_text(path: str, *, rule: str, fix: str) -> str:
    """Return the text of a file; ``rule`` and ``fix`` are those of the error if it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        received = f"{path}: {getattr(error, 'strerror', None) or error}"
        raise ArgumentError(rule, received=received, fix=fix) from error
