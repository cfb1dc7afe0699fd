"""The supported versions. `make versions` trains with the oldest, the newest, and others."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping

from tfdistr.errors import VersionError

#: Each range begins with its first version, and ends before its second. pyproject.toml has the same ranges.
SUPPORTED = {"Python": ("3.11", "3.14"), "TensorFlow": ("2.18", "2.22"), "Keras": ("3.8", "3.16")}


def check_python() -> None:
    """Check the Python of this process."""
    check({"Python": ".".join(map(str, sys.version_info[:3]))})


def check(found: Mapping[str, str]) -> None:
    """Check versions, which are given by the names in ``SUPPORTED``."""
    wrong = [name for name, version in found.items() if not is_supported(name, version)]
    if wrong:
        raise VersionError(
            f"tfdistr works with {' and '.join(f'{name} {spoken(name)}' for name in wrong)}.",
            received=f"{', '.join(f'{name} {found[name]}' for name in wrong)}, in {sys.executable}",
            fix=_fix(wrong),
        )


def is_supported(name: str, version: str) -> bool:
    """Return whether tfdistr works with this version of the package; its third number does not matter."""
    first, end = map(_pair, SUPPORTED[name])
    return first <= _pair(version) < end


def spoken(name: str) -> str:
    """Return the range of a package, such as "2.18 to 2.21"."""
    first, end = SUPPORTED[name]
    major, minor = _pair(end)
    return f"{first} to {major}.{minor - 1}"


def requirement(name: str) -> str:
    """Return the range of a package, as pip reads it."""
    first, end = SUPPORTED[name]
    return f"{name.lower()}>={first},<{end}"


def _fix(wrong: list[str]) -> str:
    if "Python" in wrong:
        return f"Use Python {spoken('Python')}; from R: install_tfdistr() makes an environment with one."
    quoted = " ".join(f'"{requirement(name)}"' for name in ("TensorFlow", "Keras"))
    return f"pip install {quoted}; from R: install_tfdistr(), and restart R."


def _pair(version: str) -> tuple[int, int]:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
