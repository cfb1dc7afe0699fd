"""The workers of a job after a failure: restarted, all or fewer, and all again as soon as they can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from tfdistr.checkpoint.folder import STOP, Position, checkpoint_folder, checkpoints
from tfdistr.checkpoint.lock import check_lock, lock_id
from tfdistr.checkpoint.preemption import Preemption, stopped
from tfdistr.clusters.backend import Backend
from tfdistr.clusters.cluster import Cluster
from tfdistr.errors import ClusterStartError, JobStoppedError, TfdistrError, WorkerFailedError
from tfdistr.jobs.resume import is_run
from tfdistr.jobs.run_dir import keep_logs, keep_run_dir
from tfdistr.schemas.events import Event, event_now
from tfdistr.supervision.supervisor import WorkerStatus, run_workers
from tfdistr.training.job import Job
from tfdistr.utils.disk import writing

OnEvent = Callable[[Event], None]


class Restarts:
    """The count of restarts without progress: one that led to a newer checkpoint does not count."""

    def __init__(self, run_dir: Path, allowed: int) -> None:
        self._folder = checkpoints(run_dir) if is_run(run_dir) else None
        self._allowed = allowed
        self._left = allowed
        self._began = self.position

    @property
    def position(self) -> Position | None:
        """The position of the newest complete checkpoint, from which the workers start."""
        return self._folder.reached() if self._folder else None

    def reset(self) -> None:
        """Reset the count."""
        self._left = self._allowed

    def another(self) -> bool:
        """Return whether to restart the workers after a failure."""
        position = self.position
        if position is not None and (self._began is None or position > self._began):
            self._left = self._allowed
        self._began = position
        self._left -= 1
        return self._left >= 0


class Attempts:
    """The attempts to train a job on workers.

    If the number of workers may change, the job adds lost workers again at its next checkpoint.

    Attributes:
        backend: The backend of the attempt, with its cluster.
    """

    def __init__(
        self, job: Job, backend: Backend, run_dir: Path, on_event: OnEvent, preemption: Preemption
    ) -> None:
        self._job, self._run_dir, self._on_event, self._preemption = job, run_dir, on_event, preemption
        self._whole = self.backend = backend
        self._restarts = Restarts(run_dir, job.recovery.max_restarts)

    def run(self, command: Sequence[str]) -> list[WorkerStatus]:
        """Run the workers. After a failure, restart all workers, or all but the failed worker."""
        for attempt in count(1):
            check_lock(self._run_dir, lock_id(self._run_dir))
            try:
                return run_workers(
                    self.backend.cluster, command, self._run_dir, self._handle,
                    heartbeat_timeout=self._job.heartbeat_timeout,
                )  # fmt: skip
            except JobStoppedError:
                if self._preemption.signalled or not self._wants_more():
                    keep_run_dir(self._run_dir)
                    raise
                self._clear(f"stopped-{attempt}")
                self.backend = self._whole
                workers = self._whole.cluster.workers
                self._warn(f"Workers are available again: the job continues with {workers} workers.")
            except (WorkerFailedError, ClusterStartError) as error:
                self._after(error, attempt)
            except TfdistrError:
                keep_run_dir(self._run_dir)
                raise
        raise AssertionError  # count() has no end

    def _wants_more(self) -> bool:
        return self._whole.cluster.fewest is not None and self.backend is not self._whole

    def _handle(self, event: Event) -> None:
        if event["event"] == "checkpoint" and self._wants_more() and event["epoch"] < self._job.epochs:
            ask_to_stop(self._run_dir)
        self._on_event(event)

    def _after(self, error: WorkerFailedError | ClusterStartError, attempt: int) -> None:
        """Prepare the next attempt; raise the error if there is none."""
        if self._preemption.signalled:  # some workers may have received it before they could save
            keep_run_dir(self._run_dir)
            raise stopped(self._restarts.position, self._run_dir) from error
        started = attempt > 1 or isinstance(error, WorkerFailedError)  # otherwise the job has never run
        again = started and self._restarts.another()
        fewer = self._without(error) if started and not again else None
        if not again and fewer is None:
            keep_run_dir(self._run_dir)  # its logs have more details than the error
            raise error
        self._clear(f"failed-{attempt}")
        reason = error.message.partition("\n")[0].rstrip(".")
        self._on_event(event_now("restart", error.worker, reason=reason))
        if fewer is not None:
            lost = f"worker {error.worker} on {error.host}"
            self._warn(
                f"The job continues without {lost}, with {fewer.workers} of its workers.", error.worker
            )
            self.backend = replace(self.backend, cluster=fewer)
            self._restarts.reset()

    def _without(self, error: WorkerFailedError | ClusterStartError) -> Cluster | None:
        """Return the cluster without the failed worker, if the job may continue on it."""
        fewest = self._job.recovery.min_workers
        if error.worker is None or fewest is None:
            return None
        return self.backend.cluster.without(error.worker, fewest)

    def _clear(self, ending: str) -> None:
        """Remove the request to stop, which a stopped server writes, and rename the logs."""
        (checkpoint_folder(self._run_dir) / STOP).unlink(missing_ok=True)
        keep_logs(self._run_dir, self.backend.cluster.workers, ending)

    def _warn(self, message: str, worker: int | None = None) -> None:
        self._on_event(event_now("warning", worker, message=message))


def ask_to_stop(run_dir: Path) -> None:
    """Make the workers save and exit."""
    path = checkpoint_folder(run_dir) / STOP
    with writing(path, "The request to save and end"):
        path.touch()
