"""The uploads of a run's checkpoints while it trains, in a thread that uploads only the newest one."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from tfdistr.checkpoint.folder import CheckpointFolder, Position
from tfdistr.checkpoint.object_store import StoreError
from tfdistr.checkpoint.stored_checkpoints import StoredCheckpoints
from tfdistr.errors import CheckpointError

#: Seconds before each new attempt of an upload that has failed.
WAITS = (1.0, 2.0, 4.0)
_LINK = "uploaded"


class Uploads:
    """The uploads of each newest checkpoint of a folder to a store.

    While an upload runs, checkpoints are still written to the folder; only the newest is uploaded next. The
    training never waits for the store.

    Args:
        uploaded: The position of the checkpoint that came from the store, if one did.
        first: Called before each upload of a checkpoint; it uploads what the checkpoint has a hash of.
        then: Called after each uploaded checkpoint; it uploads other files.
    """

    def __init__(
        self,
        folder: CheckpointFolder,
        stored: StoredCheckpoints,
        uploaded: Position | None = None,
        first: Callable[[], object] = lambda: None,
        then: Callable[[], object] = lambda: None,
    ) -> None:
        self._folder = folder
        self._stored = stored
        self._uploaded = uploaded
        self._first, self._then = first, then
        self._wanted = threading.Event()
        self._ending = False
        self._news: deque[str] = deque()
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Signal that there is a newer checkpoint; an error if another job has taken over the run."""
        self._check()
        self._wanted.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tfdistr-uploads", daemon=True)
            self._thread.start()

    def news(self) -> list[str]:
        """Return what has failed since the last call."""
        return [self._news.popleft() for _ in range(len(self._news))]

    def finish(self) -> None:
        """Wait until the newest checkpoint is in the store. A failed upload is tried again."""
        self._ending = True
        self.wake()
        assert self._thread is not None
        self._thread.join()
        self._check()
        if self._failure is not None:
            raise self._failure

    def _check(self) -> None:
        if isinstance(self._failure, CheckpointError):
            raise self._failure

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            ending = self._ending  # read after clear(): what is wanted from now on sets the event again
            self._upload()
            if ending or isinstance(self._failure, CheckpointError):
                return

    def _upload(self) -> None:
        for wait in (*WAITS, None):
            try:
                self._upload_newest()
            except CheckpointError as error:
                self._failure = error
                return
            except Exception as error:  # any error of a library must reach the user
                self._failure = error
                if wait is not None:
                    threading.Event().wait(wait)
            else:
                self._failure = None
                return
        self._news.append(f"Cannot upload a checkpoint: {self._failure}. The training continues.")

    def _upload_newest(self) -> None:
        with self._newest() as (position, file):
            if position is None or position == self._uploaded:
                return
            self._first()
            self._stored.save(position, file)
            self._uploaded = position
        try:
            self._stored.prune(position, self._folder.keep, self._folder.positions())
        except StoreError as error:  # the checkpoint itself is complete
            self._news.append(f"Cannot remove old checkpoints from the store: {error}.")
        try:
            self._then()
        except (OSError, StoreError) as error:
            self._news.append(f"Cannot upload logs: {error}. The next checkpoint tries again.")

    @contextlib.contextmanager
    def _newest(self) -> Iterator[tuple[Position | None, Path]]:
        """Keep the newest checkpoint under another name, while the folder removes old ones."""
        link = self._folder.path / _LINK
        newest = None
        while newest is None and (positions := self._folder.positions()):
            link.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):  # removed since, as there are newer ones
                _link(self._folder.path_of(positions[-1]), link)
                newest = positions[-1]
        try:
            yield newest, link
        finally:
            link.unlink(missing_ok=True)


def _link(file: Path, link: Path) -> None:
    try:
        os.link(file, link)
    except FileNotFoundError:
        raise
    except OSError:  # the file system has no links
        shutil.copyfile(file, link)
