"""The other workers of a job in a cluster that this process has joined: what they hear of this process."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from tfdistr.errors import JobMismatchError, JobStoppedError, WorkerFailedError
from tfdistr.jobs.membership import JOINED
from tfdistr.rendezvous.peer_failure import judge

if TYPE_CHECKING:
    from tfdistr.strategies.worker_strategy import WorkerStrategy


class Peers:
    """The peers of this worker. Within the context, they are told if this worker fails.

    An error of the context that is about a peer becomes the failure of that peer.

    Args:
        strategy: The strategy of this worker.
        find_lost: Names the lost process, if an error is about a process that does not train.
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
        """Agree about the seed. Without a seed of the user, each process has its own random seed.

        Args:
            seed: The seed of this process.
            uploads: Whether this process is the chief, and uploads to a store.

        Returns:
            The seed of the chief.
        """
        if self._strategy.collectives is None:
            return seed
        said = self._strategy.collectives.text_of_chief(f"{seed} uploads" if uploads else str(seed))
        chosen, _, more = said.partition(" ")
        self._wait = bool(more)
        return int(chosen)

    def wait_for_uploads(self) -> None:
        """Wait until the chief has uploaded all; the chief calls it then.

        TensorFlow would end the process of the chief when its peers have left.
        """
        if self._wait and self._strategy.collectives is not None:
            with self:
                self._strategy.collectives.text_of_chief("")

    def __enter__(self) -> Peers:
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
        verdict = judge(error, strategy.worker_index, strategy.tasks, self._find_lost, heard)
        if not verdict.known:
            strategy.report_failure(verdict.news)
        elif collectives is not None:
            collectives.pass_on(verdict.news)
        JOINED.note_failure(verdict.summary)
        if verdict.failure is not None:
            raise verdict.failure from None
