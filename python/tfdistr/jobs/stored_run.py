"""A run directory in a store: a folder of this machine, and its uploads and downloads."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import attrs

from tfdistr.checkpoint.folder import DESCRIPTION, JOB, KEPT, RESULT, Position, checkpoints
from tfdistr.checkpoint.generations import Claim, is_only_begun
from tfdistr.checkpoint.object_store import Store, StoreError, is_url, unreachable
from tfdistr.checkpoint.stored_checkpoints import StoredCheckpoints
from tfdistr.checkpoint.stored_documents import StoredDocuments, described
from tfdistr.checkpoint.trace import TRACE
from tfdistr.checkpoint.uploads import Uploads
from tfdistr.errors import CheckpointError, JobStoppedError, how_to_resume
from tfdistr.jobs.outcome import Outcome
from tfdistr.jobs.result_files import RESULT_FILES
from tfdistr.jobs.resume import is_run, note_result
from tfdistr.jobs.run_dir import keep_run_dir, open_run_dir, refused, remove_run_dir, temporary_run_dir
from tfdistr.schemas import read
from tfdistr.schemas.events import Event, event_now

if TYPE_CHECKING:
    from tfdistr.clusters.cluster import Cluster
    from tfdistr.training.job import Job

# What a resumed job needs besides run.json. Never a pickle: files from a store must not run code. The result
# is last: it marks the run as complete.
_RESULTS = (*RESULT_FILES, RESULT)
_OUTPUT = ("logs/*", "workers/*/events.jsonl")
_COPY = "output.partial"


class StoredRun:
    """A run in a store. From `begin` on, its checkpoints are uploaded as they are written, and its logs.

    `end`, and the end of the context, upload the whole logs, the events and the documents.

    Attributes:
        folder: The folder of this machine. It is removed at exit, if the store has all of it.
    """

    def __init__(self, url: str, cluster: object = None, *, resume: bool = False, keep: int = KEPT) -> None:
        self._keep = keep
        self._store = Store(url)
        self._claim = Claim(self._store)
        self._stored = StoredCheckpoints(self._store, self._claim)
        self._documents = StoredDocuments(self._store, self._claim)
        self._uploads: Uploads | None = None
        self._begun = self._active = False
        self._uploaded: dict[str, tuple[int, int]] = {}  # size and time of the logs that are in the store
        self._tell: Callable[[Event], object] = lambda event: None
        try:
            names = [name for name in self._store.names() if not is_only_begun(name, [JOB])]
        except StoreError as error:
            raise unreachable(self._store.url, error) from error
        earlier = described(names) is not None
        if names and not (resume and earlier):
            raise refused(self._store.url, earlier, resume=resume)
        self.folder = temporary_run_dir(cluster)
        try:
            self._fetched = self._fetch() if earlier else None
        except BaseException as error:
            remove_run_dir(self.folder)
            if isinstance(error, StoreError):
                raise unreachable(self._store.url, error) from error
            raise

    def _fetch(self) -> Position | None:
        if not self._documents.fetch(self.folder, *_RESULTS):
            return None  # somebody has just removed it
        read("run", (self.folder / DESCRIPTION).read_bytes())  # others could have changed it
        position = self._stored.fetch(checkpoints(self.folder))
        if self._store.download(TRACE, self.folder / TRACE):
            (self.folder / TRACE).chmod(0o600)
        return position

    def begin(self, tell: Callable[[Event], object]) -> None:
        """Take over the run, and write the documents of the job into it, before any computation."""
        try:
            self._claim.make()
            self._documents.upload(self.folder, *_RESULTS, JOB, DESCRIPTION)
        except StoreError as error:
            raise unreachable(self._store.url, error) from error
        self._tell = tell
        self._begun = self._active = True
        if is_run(self.folder):
            self._uploads = Uploads(
                checkpoints(self.folder, self._keep), self._stored, self._fetched, self._upload_trace,
                lambda: self._upload_new(*_OUTPUT),
            )  # fmt: skip

    def on_event(self, event: Event) -> None:
        """Record an event of the job, and warn of failed uploads."""
        if self._uploads is None:
            return
        if event["event"] == "checkpoint":
            self._uploads.wake()
        for message in self._uploads.news():
            self._warn(f"{self._store.url}: {message}")

    def note(self, result: Outcome) -> Outcome:
        """Write the result with the URL of the store, and return it."""
        place = str(self.folder)
        rows = [
            {**row, "log": row["log"] and row["log"].replace(place, self._store.url)}
            for row in result.workers
        ]
        shown = attrs.evolve(result, run_dir=self._store.url, workers=rows)
        note_result(self.folder, shown)
        return shown

    def end(self) -> None:
        """Wait for the checkpoints of a job that is complete, and upload the rest, once."""
        if not self._active:
            return
        try:
            self._finish(complete=True)
        except CheckpointError:
            raise
        except Exception as error:
            raise CheckpointError(
                "Cannot upload the whole run to its store at the end of the job.",
                received=f"{self._store.url}: {error}",
                fix=f"Pass run_dir={str(self.folder)!r} and resume=True: the whole run is there.",
            ) from error

    def __enter__(self) -> StoredRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            self.end()
        elif not self._begun:
            remove_run_dir(self.folder)
        elif self._active:
            self._end_after(error)
        if isinstance(error, JobStoppedError):
            raise JobStoppedError(error.message, fix=how_to_resume(self._store.url)) from None

    def _end_after(self, error: BaseException) -> None:
        try:
            self._finish(complete=False)
        except Exception as failure:
            if failure is not error:
                why = getattr(failure, "received", f"{self._store.url}: {failure}")
                self._warn(f"The last files of the run are not in its store: {why}. See {self.folder}.")

    def _finish(self, *, complete: bool) -> None:
        self._active = False
        try:
            if self._uploads is not None:
                self._uploads.finish()
            self._upload_trace()
            self._upload_new(*_OUTPUT)
            if complete:
                self._documents.remove(RESULT)
                self._documents.upload(self.folder, *_RESULTS)
        except CheckpointError:  # the run continues elsewhere
            raise
        except BaseException:
            keep_run_dir(self.folder)
            raise

    def _upload_trace(self) -> None:
        """Upload the trace, unless another job has taken over the run."""
        self._claim.check()
        self._upload_new(TRACE)

    def _upload_new(self, *patterns: str) -> None:
        """Upload the new output of the job's processes."""
        for file in (file for pattern in patterns for file in sorted(self.folder.glob(pattern))):
            with contextlib.suppress(FileNotFoundError):  # a restart renames the logs
                self._upload_if_changed(file)

    def _upload_if_changed(self, file: Path) -> None:
        name = file.relative_to(self.folder).as_posix()
        now = file.stat()
        state = (now.st_size, now.st_mtime_ns)
        if state == self._uploaded.get(name):
            return
        copy = self.folder / _COPY  # the libraries of stores need a file that does not grow
        try:
            shutil.copyfile(file, copy)
            self._store.upload(name, copy)
        finally:
            copy.unlink(missing_ok=True)
        self._uploaded[name] = state

    def _warn(self, message: str) -> None:
        self._tell(event_now("warning", message=message))


@contextlib.contextmanager
def open_run(
    run_dir: Any, job: Job, cluster: Cluster | None = None
) -> Iterator[tuple[Path, StoredRun | None]]:
    """Open the folder of a job: a folder of this machine, or that of a run in a store, and this run."""
    resume = job.recovery.resume
    if is_url(run_dir):
        with StoredRun(run_dir, cluster, resume=resume, keep=job.recovery.keep) as stored:
            yield stored.folder, stored
        return
    with open_run_dir(run_dir, cluster, resume=resume, heartbeat_timeout=job.heartbeat_timeout) as folder:
        yield folder, None
