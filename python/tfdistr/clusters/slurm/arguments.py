"""The forms of the arguments of ``slurm_cluster()``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tfdistr.errors import ArgumentError
from tfdistr.schemas import show

#: The script of a job, where the user gives none.
TEMPLATE = """\
#!/bin/sh
{options}
{setup}
exec {command}
"""
# Minutes, minutes:seconds, hours:minutes:seconds, or days-hours with or without minutes and seconds.
_TIME = re.compile(r"\d+(:\d{1,2}){0,2}|\d+-\d{1,2}(:\d{1,2}){0,2}|UNLIMITED|INFINITE", re.IGNORECASE)
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
# The options that decide where the output is, and how many workers run.
_OWN = {
    "output": "follow", "error": "follow", "nodes": "nodes", "ntasks": "workers",
    "ntasks-per-node": "workers_per_host", "cpus-per-task": "cores_per_worker",
    "gpus-per-task": "gpus_per_worker", "partition": "partition", "time": "time", "account": "account",
    "array": "nodes", "wrap": "setup",
}  # fmt: skip


def optional_word(name: str, value: Any) -> str | None:
    """Return ``value``, if it is None or a text without spaces."""
    if value is None:
        return None
    if not isinstance(value, str) or not value or re.search(r"\s", value):
        raise ArgumentError(
            f"`{name}` must be a Slurm name, without spaces.",
            received=show(value),
            fix=f"Pass a {name} that exists (sinfo, sacctmgr show associations), or leave it out.",
        )
    return value


def time_limit(name: str, value: Any) -> str | None:
    """Return ``value``, if it is None or a Slurm time limit; a whole number means minutes."""
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 and value == int(value):
        return str(int(value))
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ArgumentError(
            f"`{name}` must be a Slurm time limit.",
            received=show(value),
            fix=f'Pass {name}="30" for minutes, "2:30:00" for hours, or "1-12" for a day and 12 hours.',
        )
    return value


def options(name: str, value: Any) -> dict[str, str | bool]:
    """Check sbatch options, and return them as text; True is an option without a value."""
    if value is not None and not isinstance(value, Mapping):
        raise ArgumentError(
            f"`{name}` must map the long names of sbatch options to their values.",
            received=show(value),
            fix='Pass for example options={"mem": "8G", "exclusive": True}.',
        )
    found: dict[str, str | bool] = {}
    for key, given in (value or {}).items():
        option = key.replace("_", "-") if isinstance(key, str) else ""
        if not _OPTION.fullmatch(option):
            raise ArgumentError(
                f"Each name in `{name}` must be the long name of an sbatch option, without the dashes.",
                received=show(key),
                fix='Write it like "mem" or "gpus-per-task".',
            )
        if option in _OWN:
            raise ArgumentError(
                f"`{name}` must not have {option!r}: tfdistr sets it.",
                received=show(key),
                fix=f"Leave it out; see the argument `{_OWN[option]}` of slurm_cluster().",
            )
        number = isinstance(given, int | float) and not isinstance(given, bool)
        text = f"{given:g}" if number else given
        if text is not True and (not isinstance(text, str) or not text or re.search(r"[\r\n]", text)):
            raise ArgumentError(
                f"`{name}` must give {option!r} a value that is a text of one line, a number, or True.",
                received=show(given),
                fix='Pass for example options={"mem": "8G", "exclusive": True}.',
            )
        found[option] = text
    return found


def lines(name: str, value: Any) -> tuple[str, ...]:
    """Return the lines of ``value``: None, one text, or a list of texts."""
    listed = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(listed, Sequence) or any(not isinstance(line, str) for line in listed):
        raise ArgumentError(
            f"`{name}` must be lines for a shell, as text.",
            received=show(value),
            fix='Pass setup=["module load cuda"], for example, or leave it out.',
        )
    return tuple(listed)


def template(name: str, value: Any) -> str | None:
    """Return ``value``, if it is None or a script with the places for the options and the command."""
    if value is None:
        return None
    absent = [
        place for place in ("{options}", "{command}") if not isinstance(value, str) or place not in value
    ]
    if absent or not value.startswith("#!"):
        raise ArgumentError(
            f"`{name}` must be a script that begins with #! and has the places {{options}} and {{command}}.",
            received=show(value if not isinstance(value, str) else value.partition("\n")[0])
            + (f", without {' and '.join(absent)}" if absent else ""),
            fix='Pass "#!/bin/sh\\n{options}\\n{setup}\\nexec {command}\\n", with lines of your own.',
        )
    return str(value)
