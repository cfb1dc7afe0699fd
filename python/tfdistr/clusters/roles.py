"""The role of a process in a cluster, and what its end means for the others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Role:
    """The role of a process in a cluster.

    Args:
        title: Its name in errors, such as "Worker 1 of 3".
        task: Its task, such as "worker 1".
        replaceable: Whether another process replaces it if it dies after it was ready.
        leads: Whether the others have no work left when it is done.
    """

    title: str
    task: str
    replaceable: bool = False
    leads: bool = False


def equal_workers(count: int) -> list[Role]:
    """The roles of workers that all need each other."""
    return [Role(f"Worker {index} of {count}", f"worker {index}") for index in range(count)]
