"""Uploads the checkpoints of a run while it trains, in a thread that waits for the newest one only."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfdistr._utils.store import StoreError
from tfdistr.checkpoint.folder import CheckpointFolder, Position
from tfdistr.checkpoint.stored import StoredCheckpoints

#: Seconds before each new attempt of an upload that has failed.
WAITS = (1.0, 2.0, 4.0)
_LINK = "uploaded"


class Uploads:
    """Brings each newest checkpoint of a folder into a store.

    While an upload runs, checkpoints are written as before; of those only the newest is uploaded next. So the
    training never waits for the store.

    Args:
        folder: The checkpoints on this machine.
        stored: The checkpoints in the store.
        uploaded: The position of the checkpoint that came from the store, if one did.
        waits: Seconds before each new attempt of an upload that has failed.
    """

    def __init__(
        self,
        folder: CheckpointFolder,
        stored: StoredCheckpoints,
        uploaded: Position | None = None,
        waits: Sequence[float] = WAITS,
    ) -> None:
        self._folder = folder
        self._stored = stored
        self._uploaded = uploaded
        self._waits = waits
        self._changed = threading.Condition()
        self._wanted = self._ending = False
        self._failures: list[str] = []
        self._failure: StoreError | OSError | None = None
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Note that there is a newer checkpoint."""
        with self._changed:
            self._wanted = True
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tfdistr-uploads", daemon=True)
            self._thread.start()

    def failures(self) -> list[str]:
        """The reasons of the uploads that have failed since the last call. The session warns of them."""
        with self._changed:
            failures, self._failures = self._failures, []
        return failures

    def finish(self) -> str | None:
        """Wait until the newest checkpoint is in the store.

        Returns:
            Why it is not there; None if it is.
        """
        if self._thread is None:
            return None
        with self._changed:
            # A checkpoint whose upload has failed gets another chance.
            self._wanted = self._wanted or self._failure is not None
            self._ending = True
            self._changed.notify()
        self._thread.join()
        return None if self._failure is None else str(self._failure)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._ending)
                if not self._wanted:
                    return
                self._wanted = False
            self._upload()

    def _upload(self) -> None:
        for wait in (*self._waits, None):
            try:
                self._upload_newest()
            except (StoreError, OSError) as error:
                self._failure = error
                if wait is not None:
                    threading.Event().wait(wait)
            else:
                self._failure = None
                return
        with self._changed:
            self._failures.append(str(self._failure))

    def _upload_newest(self) -> None:
        with self._newest() as (position, file):
            if position is not None and position != self._uploaded:
                self._stored.save(position, file)
                self._uploaded = position

    @contextlib.contextmanager
    def _newest(self) -> Iterator[tuple[Position | None, Path]]:
        """The newest checkpoint, under a name that stays while the folder removes old ones."""
        link = self._folder.path / _LINK
        position = None
        for position in reversed(self._folder.positions()):
            link.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):  # removed since, as there are newer ones
                _link(self._folder.path_of(position), link)
                break
        try:
            yield position, link
        finally:
            link.unlink(missing_ok=True)


def _link(file: Path, link: Path) -> None:
    try:
        os.link(file, link)
    except FileNotFoundError:
        raise
    except OSError:  # the file system has no links
        shutil.copyfile(file, link)
