"""The error for workers of a cluster that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tfdistr.errors import JobMismatchError

# Number of differences in a message: the first ones are enough to see the cause.
_SHOWN = 5


def mismatch(
    described: Sequence[Mapping[str, str | None]], names: Sequence[str] | None = None
) -> JobMismatchError | None:
    """Return the error that names the fields in which the workers differ; None if they are equal.

    Args:
        described: The fields of each worker, by their names. The value None is equal to any value.
        names: The names of the workers; by default "worker 0" and so on.
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
    """Describe each field that differs: each value and its workers. The first worker's value comes first."""
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
