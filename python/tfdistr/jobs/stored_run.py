"""A run directory in a store: a folder of this machine, and what brings the one to the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

from tfdistr._utils.store import Store, StoreError, unreachable
from tfdistr.checkpoint.folder import DESCRIPTION, checkpoints
from tfdistr.checkpoint.stored import StoredCheckpoints
from tfdistr.checkpoint.uploads import Uploads
from tfdistr.errors import CheckpointError, JobStoppedError, how_to_go_on
from tfdistr.jobs.documents import JOB
from tfdistr.jobs.result import RESULT_FILES, FitResult
from tfdistr.jobs.resume import RESULT, is_run, note_result
from tfdistr.jobs.run_dir import keep_run_dir, make_run_dir, refused

# What a job that goes on needs. Never a pickle: what is read from a store must not run code.
_FETCHED = (DESCRIPTION, RESULT, *RESULT_FILES)
_DOCUMENTS = (DESCRIPTION, JOB, RESULT, *RESULT_FILES)
_OUTPUT = ("logs/*", "workers/*/events.jsonl")


class StoredRun:
    """A run in a store. Within the context, its checkpoints are uploaded as they are written.

    At the end of the context, the context uploads the logs, the events and the documents, too.

    Args:
        url: The URL of the run.
        cluster: The cluster of the job, or None; it says where the folder is.
        resume: Whether the job goes on with the run, if there is one.

    Attributes:
        folder: The folder of this machine, which is removed at exit unless the job failed.

    Raises:
        ArgumentError: The store cannot be used, or has a run that the job must not overwrite.
    """

    def __init__(self, url: str, cluster: Any = None, *, resume: bool = False) -> None:
        self._store = Store(url)
        try:
            names = self._store.names()
            if names and not (resume and DESCRIPTION in names):
                raise refused(self._store.url, earlier=DESCRIPTION in names, resume=resume)
            self.folder = make_run_dir(None, cluster)
            fetched = self._fetch() if names else None
        except StoreError as error:
            raise unreachable(self._store.url, error) from error
        self._stored = StoredCheckpoints(self._store)
        self._uploads: Uploads | None = None
        self._fetched = fetched
        self._tell: Callable[[dict[str, Any]], object] = lambda event: None

    def _fetch(self) -> Any:
        for name in _FETCHED:
            if self._store.download(name, self.folder / name):
                (self.folder / name).chmod(0o600)  # whatever the umask is, others must not be able to write
        return StoredCheckpoints(self._store).fetch(checkpoints(self.folder))

    def begin(self, tell: Callable[[dict[str, Any]], object]) -> None:
        """Write the documents of the job into the store, before anything is computed.

        Args:
            tell: Called with the events that warn the user.

        Raises:
            ArgumentError: The store cannot be written.
        """
        self._tell = tell
        try:
            self._upload(DESCRIPTION, JOB)
        except StoreError as error:
            raise unreachable(self._store.url, error) from error
        if is_run(self.folder):
            self._uploads = Uploads(checkpoints(self.folder), self._stored, self._fetched)

    def on_event(self, event: dict[str, Any]) -> None:
        """Take note of an event of the job, and warn of uploads that have failed."""
        if self._uploads is None:
            return
        if event["event"] == "checkpoint":
            self._uploads.wake()
        for reason in self._uploads.failures():
            self._warn(
                f"A checkpoint could not be uploaded to {self._store.url}: {reason}. The training goes on."
            )

    def note(self, result: FitResult) -> FitResult:
        """Write the result as the user of the store sees it, and return it so."""
        place = str(self.folder)
        rows = [
            {**row, "log": row["log"] and row["log"].replace(place, self._store.url)}
            for row in result.workers
        ]
        shown = replace(result, run_dir=self._store.url, workers=rows)
        note_result(self.folder, shown)
        return shown

    def __enter__(self) -> StoredRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        why = self._finish()
        if why is not None:
            keep_run_dir(self.folder)
        if error is None and why is not None:
            raise CheckpointError(
                "At the end of a job, all of its run must be in its store.",
                received=f"{self._store.url}: {why}",
                fix=f"The whole run is in {self.folder}. Pass run_dir={str(self.folder)!r} and resume=True.",
            )
        if why is not None:
            self._warn(
                f"The last files of the run are not in {self._store.url}: {why}. They are in {self.folder}."
            )
        if isinstance(error, JobStoppedError):
            raise JobStoppedError(error.message, fix=how_to_go_on(self._store.url)) from None

    def _finish(self) -> str | None:
        """Wait for the checkpoints and upload the rest; return why this failed."""
        why = self._uploads.finish() if self._uploads is not None else None
        try:
            self._upload(*_DOCUMENTS)
            for pattern in _OUTPUT:
                for file in sorted(self.folder.glob(pattern)):
                    self._store.upload(file.relative_to(self.folder).as_posix(), file)
        except (StoreError, OSError) as error:
            return why or str(error)
        return why

    def _upload(self, *names: str) -> None:
        for name in names:
            if (self.folder / name).is_file():
                self._store.upload(name, self.folder / name)

    def _warn(self, message: str) -> None:
        self._tell({"event": "warning", "message": message, "worker": None, "time": time.time()})
