"""The cluster that this process has joined by hand, and the reports of failures to its peers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tfdistr.errors import ClusterStartError, JobMismatchError, JobStoppedError, WorkerFailedError
from tfdistr.rendezvous.config import ClusterConfig
from tfdistr.rendezvous.peer_failure import attribute_failure

if TYPE_CHECKING:
    from tfdistr.strategies.multi_worker_mirrored import MultiWorkerMirroredStrategy
    from tfdistr.strategies.worker_strategy import WorkerStrategy


class Membership:
    """The strategy of this process in its cluster, from its first job on."""

    def __init__(self) -> None:
        self._how: dict[str, Any] = {}
        self._strategy: MultiWorkerMirroredStrategy | None = None
        self._failure = ""

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments with which the first call has joined the cluster; empty before that call."""
        return {name: value for name, value in self._how.items() if name != "TF_CONFIG"}

    def join(self, config: ClusterConfig | None, arguments: Mapping[str, Any]) -> MultiWorkerMirroredStrategy:
        """Return the strategy of this process, which the first call makes; MPI ranks have no ``config``."""
        from tfdistr.strategies.multi_worker_mirrored import MultiWorkerMirroredStrategy

        how = {"TF_CONFIG": config.to_json() if config else "", **arguments}
        del how["start_timeout"]  # only the first call starts the cluster
        if self._failure:
            raise ClusterStartError(
                "A worker of this cluster has failed, so its connections are closed.",
                received=f"a call after this: {self._failure}",
                fix="Restart the process, or the session, of each worker.",
            )
        if self._strategy is None:
            self._strategy, self._how = MultiWorkerMirroredStrategy(**arguments), how
        other = [name for name in how if how[name] != self._how[name]]
        if other:
            raise ClusterStartError(
                "Cannot join another cluster: a process stays in the cluster of its first call.",
                received=" and ".join(
                    f"{name} {how[name]!r}, where the first call had {self._how[name]!r}" for name in other
                ),
                fix="Pass the arguments of the first call, or restart the process of each worker.",
            )
        return self._strategy

    def note_failure(self, message: str) -> None:
        """Record why a job has failed; the cluster then trains no other job."""
        if self._strategy is not None and self._strategy.num_workers > 1:
            self._failure = message.partition("\n")[0]


#: The cluster of this process. Tests may replace it.
JOINED = Membership()


class Alone(contextlib.nullcontext[None]):
    """Takes the place of peers in a process that need not inform any."""

    def agree(self, seed: int, *, uploads: bool) -> int:
        """Return the seed."""
        return seed

    def wait_for_uploads(self) -> None:
        """Do nothing."""


class InformedPeers:
    """The peers of this worker. The context reports a failure of this worker to them.

    An error of the context that is about a peer becomes the failure of that peer.
    """

    def __init__(
        self,
        strategy: WorkerStrategy,
        find_lost: Callable[[BaseException], WorkerFailedError | None] = lambda error: None,
    ) -> None:
        self._strategy = strategy
        self._find_lost = find_lost
        self._wait = False

    def agree(self, seed: int, *, uploads: bool) -> int:
        """Agree about the seed. Without a user's seed, each process has its own random seed."""
        if self._strategy.collectives is None:
            return seed
        said = self._strategy.collectives.text_of_chief(f"{seed} uploads" if uploads else str(seed))
        chosen, _, more = said.partition(" ")
        self._wait = bool(more)
        return int(chosen)

    def wait_for_uploads(self) -> None:
        """Wait until the chief has uploaded all; the chief calls it then.

        TensorFlow would kill the chief's process when its peers have left.
        """
        if self._wait and self._strategy.collectives is not None:
            with self:
                self._strategy.collectives.text_of_chief("")

    def __enter__(self) -> InformedPeers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, JobStoppedError):  # all workers raise it
            return
        self._wait = False
        if isinstance(error, JobMismatchError):  # so with this error
            return
        # Also an interrupt: the session may live on.
        strategy, collectives = self._strategy, self._strategy.collectives
        heard = collectives.heard_failure if collectives is not None else lambda: None
        verdict = attribute_failure(error, strategy.worker_index, strategy.tasks, self._find_lost, heard)
        if not verdict.known:
            strategy.report_failure(verdict.news)
        elif collectives is not None:
            collectives.pass_on(verdict.news)
        JOINED.note_failure(verdict.summary)
        if verdict.failure is not None:
            raise verdict.failure from None
