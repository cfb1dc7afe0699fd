"""The part of a result that the strategy adds, for a job on workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfdistr.schemas.events import Event

if TYPE_CHECKING:
    from tfdistr.clusters.cluster import Cluster
    from tfdistr.training.job import Job

OnEventOfJob = Callable[[Event], object]


class Summary:
    """A handler of a job's events. That of most strategies passes them on, and adds nothing."""

    def __init__(self, on_event: OnEventOfJob) -> None:
        self._on_event = on_event

    def __call__(self, event: Event) -> None:
        self._on_event(event)

    def recall(self, result: Mapping[str, object]) -> None:
        """Load its data from the result of a complete run, instead of events."""

    def params(self, job: Job, cluster: Cluster) -> dict[str, Any]:
        """Return the strategy's numbers in the result, beside the numbers of every job."""
        return {}

    def row(self, row: Mapping[str, object]) -> dict[str, Any]:
        """Return the row of a process in the result."""
        return dict(row)
