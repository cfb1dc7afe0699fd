"""The cluster that this process has joined; TensorFlow can join only once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdistr.errors import ClusterStartError
from tfdistr.rendezvous.config import ClusterConfig
from tfdistr.training.job import Job

if TYPE_CHECKING:
    from tfdistr.strategies.multi_worker_mirrored import MultiWorkerMirroredStrategy


class Joined:
    """The strategy of this process in its cluster, from its first job on."""

    def __init__(self) -> None:
        self._how: dict[str, Any] = {}
        self._strategy: MultiWorkerMirroredStrategy | None = None
        self._failure = ""

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments with which the first call has joined the cluster; empty before that call."""
        return {name: value for name, value in self._how.items() if name != "TF_CONFIG"}

    def join(self, config: ClusterConfig | None, job: Job) -> MultiWorkerMirroredStrategy:
        """The strategy of this process; the first call makes it.

        Args:
            config: The cluster that TF_CONFIG describes; None for the ranks that ``mpiexec`` has started.
            job: The job to train.

        Raises:
            ClusterStartError: A worker failed in an earlier call, or the cluster was joined in another way.
        """
        from tfdistr.strategies.multi_worker_mirrored import MultiWorkerMirroredStrategy

        how = {"TF_CONFIG": config.to_json() if config else "", **job.strategy_options}
        del how["start_timeout"]  # only the first call starts the cluster
        if self._failure:
            raise ClusterStartError(
                "A cluster trains until one of its workers fails: its connections are closed then.",
                received=f"a call after this: {self._failure}",
                fix="Start the process, or the session, of each worker again.",
            )
        if self._strategy is None:
            self._strategy, self._how = MultiWorkerMirroredStrategy(**job.strategy_options), how
        other = [name for name in how if how[name] != self._how[name]]
        if other:
            raise ClusterStartError(
                "A process joins one cluster, in its first call, and stays in it.",
                received=" and ".join(
                    f"{name} {how[name]!r}, where the first call had {self._how[name]!r}" for name in other
                ),
                fix="Call as the first call did, or start the process of each worker again.",
            )
        return self._strategy

    def note_failure(self, message: str) -> None:
        """Note why a job has failed; the cluster then trains no other job."""
        if self._strategy is not None and self._strategy.num_workers > 1:
            self._failure = message.partition("\n")[0]


#: The cluster of this process. Tests may replace it.
JOINED = Joined()
