"""In what the workers of a cluster differ, as it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfdistr.errors import JobMismatchError

# Differences that a message lists: the first ones say what is wrong.
_SHOWN = 5


def mismatch(
    described: Sequence[Mapping[str, str | None]], names: Sequence[str] | None = None
) -> JobMismatchError | None:
    """The error that says in which fields the workers differ, if they do.

    Args:
        described: Values by name, of each worker. None goes with any value.
        names: How the workers are called; by default "worker 0" and so on.
    """
    found = _differences(described, names or [f"worker {index}" for index in range(len(described))])
    if not found:
        return None
    more = len(found) - _SHOWN
    shown = [*found[:_SHOWN], *([f"{more} more differences"] if more > 0 else [])]
    return JobMismatchError(
        "All workers must run the same job.",
        received="; ".join(shown),
        fix="Run the same program with the same arguments, data and package versions on every worker.",
    )


def _differences(described: Sequence[Mapping[str, str | None]], names: Sequence[str]) -> list[str]:
    """For each field that differs: who has what, those of the chief first."""
    found = []
    for field in dict.fromkeys(field for fields in described for field in fields):
        workers: dict[str, list[str]] = {}
        for name, fields in zip(names, described, strict=True):
            value = fields.get(field, "nothing")
            if value is not None:
                workers.setdefault(value, []).append(name)
        if len(workers) > 1:
            who = [f"{value} on {' and '.join(which)}" for value, which in workers.items()]
            found.append(f"{field}: {', '.join(who)}")
    return found
