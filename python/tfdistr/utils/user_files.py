"""Files that a user names."""

from __future__ import annotations

from pathlib import Path

from tfdistr.errors import ArgumentError


def read_text(path: str, *, rule: str, fix: str) -> str:
    """Return the text of a file.

    Args:
        path: The path of the file.
        rule: The rule of the error, such as "`hostfile` must name a file that can be read."
        fix: The fix of the error.

    Raises:
        ArgumentError: The file cannot be read, or is not text.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        received = f"{path}: {getattr(error, 'strerror', None) or error}"
        raise ArgumentError(rule, received=received, fix=fix) from error
