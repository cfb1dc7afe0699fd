"""The data of a job, as one worker reads it."""

from __future__ import annotations

from typing import Any

from tfdistr.data.pipeline.host_cache import HostMemory
from tfdistr.data.pipeline.worker_data import WorkerData, make_data
from tfdistr.data.source import Source
from tfdistr.strategies.worker_strategy import WorkerStrategy
from tfdistr.training.job import Job


class Reader:
    """Makes the batches of one worker.

    Args:
        job: The job.
        strategy: The strategy of the worker.
    """

    def __init__(self, job: Job, strategy: WorkerStrategy) -> None:
        self._job = job
        self._place: dict[str, Any] = {
            "num_workers": strategy.num_workers,
            "index": strategy.worker_index,
            "virtual_workers": strategy.own_virtual_workers,
        }
        peers = strategy.collectives
        self._memory = HostMemory.join(peers.exchange) if peers else HostMemory()

    def training_data(self, start: int = 0, *, of_known_size: bool = False) -> WorkerData:
        """The training data from step ``start`` on, counted over all epochs; see ``make_data``."""
        context = self._job.context(training=True, **self._place)
        return make_data(
            self._job.source, context, self._job.steps_per_epoch, start, memory=self._memory,
            of_known_size=of_known_size,
        )  # fmt: skip

    def data_in_order(self, source: Source, steps: int | None, name: str = "x") -> WorkerData:
        """Data that is not shuffled, for a validation or an evaluation.

        Args:
            source: The data.
            steps: Number of steps; None for one pass.
            name: The name of the data for the user.
        """
        context = self._job.context(training=False, **self._place)
        return make_data(source, context, steps, name=name, memory=self._memory)
