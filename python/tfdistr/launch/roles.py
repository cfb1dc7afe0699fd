"""What a process of a cluster is there for, and what its end means for the others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Role:
    """The part of a process in a cluster.

    Args:
        title: How errors name it, such as "Worker 1 of 3".
        task: Its task, such as "worker 1".
        replaceable: Whether another process takes its place if it dies once it was ready.
        leads: Whether the others have no more to do when it is done.
    """

    title: str
    task: str
    replaceable: bool = False
    leads: bool = False


def equal_workers(count: int) -> list[Role]:
    """The roles of workers that all need each other."""
    return [Role(f"Worker {index} of {count}", f"worker {index}") for index in range(count)]
