"""The hosts of ``tfdistr run``, and files with hosts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import read_text

# As mpiexec and others write them: "node-1", "node-1:2", "node-1 slots=2".
_LINE = re.compile(
    r"(?P<host>\[[^\]\s]+\]|[^\s:#=]+)(?:\s*:\s*(?P<count>\d+)|\s+slots\s*=\s*(?P<slots>\d+))?\Z"
)


@dataclass(frozen=True)
class Hosts:
    """Hosts with the same number of workers on each.

    Args:
        each: The number of workers on each; None if the hosts do not say it.
    """

    names: Sequence[str]
    each: int | None = None


def read_hostfile(path: str) -> Hosts:
    """Read a file with a host on each line; "#" begins a comment."""
    text_of_file = read_text(
        path,
        rule="`hostfile` must name a file that can be read.",
        fix="Write a host on each line: node-1 slots=2",
    )
    hosts: dict[str, int | None] = {}
    for number, line in enumerate(text_of_file.splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        found = _LINE.match(text)
        if found is None or found["host"].strip("[]") in hosts:
            raise ArgumentError(
                "Each line of a hostfile must have one host, which no other line has.",
                received=f"line {number} of {path}: {text}",
                fix="Write it like: node-1 slots=2",
            )
        count = found["count"] or found["slots"]
        hosts[found["host"].strip("[]")] = None if count is None else int(count)  # ssh takes no brackets
    numbers = set(hosts.values())
    if len(numbers) != 1 or 0 in numbers:
        raise ArgumentError(
            "A hostfile must have at least one host, and the same number of workers for all.",
            received=", ".join(f"{host}: {'no number' if n is None else n}" for host, n in hosts.items())
            or f"{path} without a host",
            fix="Write a host on each line, each with the same slots=, or without it.",
        )
    return Hosts(tuple(hosts), numbers.pop())
