"""The lock of a run directory: one job at a time writes there.

The system's lock (flock) shows at once whether a job of this machine holds the directory, and is released
with its process. File systems of several machines may not share it. So the lock is also a lease: its holder
changes the file at short intervals. A job that cannot know whether the holder lives waits until the lease has
not changed for as long as the workers of a lost launcher may live, by its own clock.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import socket
import threading
import time
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs

from tfdistr.errors import ArgumentError, CheckpointError
from tfdistr.utils.disk import BEFORE_START, writing
from tfdistr.utils.processes import running_system
from tfdistr.utils.trusted_files import create_private
from tfdistr.utils.warn import NOTE

log = logging.getLogger("tfdistr")

#: The file of the lock, in the run directory.
LOCK = "lock"
#: The variable by which workers know the lock of their launcher: its id, and the run directory.
VARIABLE = "TFDISTR_LOCK"

_SLOWEST = 5.0  # seconds between two changes of a lease, at most
_POLL = 0.2  # seconds
_RULE = "Only one job at a time may write to a run directory."
_FIX = "Stop one of the two jobs, or pass another `run_dir`."


@attrs.frozen
class Lease:
    """The content of a lock.

    Attributes:
        host: Its machine.
        boot: The id of the running system of that machine.
        since: When the process got it, by its clock.
        elsewhere: Whether processes on other machines write for it.
        wait: Seconds without a change after which all its processes have exited.
        beat: How often the lease has been renewed.
    """

    id: str
    process: int
    host: str
    boot: str
    since: str
    elsewhere: bool
    wait: float
    beat: int = 0

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, since {self.since}"


class RunLock:
    """The lock of one run directory. A forked child does not have it."""

    def __init__(self, folder: Path, heartbeat_timeout: float = 30.0, *, elsewhere: bool = False) -> None:
        self._folder, self._path = folder, folder / LOCK
        self._interval = min(_SLOWEST, heartbeat_timeout / 4)
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        self._lease = Lease(
            uuid.uuid4().hex, os.getpid(), socket.gethostname(), running_system(), since, elsewhere,
            heartbeat_timeout + self._interval,
        )  # fmt: skip
        self._descriptor: int | None = None
        self._end, self._writes = threading.Event(), threading.Lock()

    @property
    def id(self) -> str:
        """The id of the lock."""
        return self._lease.id

    def acquire(self) -> None:
        """Take the lock. Wait if its holder may have exited on another machine."""
        what, size = "The lock of a run directory", len(_text(self._lease))
        with writing(self._path, what, needed=lambda: size, only_refusals=True, fix=BEFORE_START):
            while (held := self._open()) is None:
                pass
            try:
                self._replace()
            finally:
                os.close(held)
        _HELD[str(self._folder)] = self
        threading.Thread(target=self._renew, name="tfdistr-lock", daemon=True).start()

    def _open(self) -> int | None:
        """Return the locked file of an exited holder; None if the file has changed meanwhile."""
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            known = _flock(descriptor)
            if not _is_at(descriptor, self._path):
                os.close(descriptor)
                return None
            earlier = _read(self._path)
            if earlier and not (known and earlier.boot == self._lease.boot and not earlier.elsewhere):
                self._wait_for_end(earlier)
        except BlockingIOError:
            os.close(descriptor)
            raise in_use(self._folder) from None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _wait_for_end(self, earlier: Lease) -> None:
        """Wait until a lease has not changed for long enough."""
        log.warning(
            "A job that may still run holds the lock of %s (%s). Waiting for %.0f seconds.",
            self._folder, earlier, earlier.wait, extra=NOTE,
        )  # fmt: skip
        until = time.monotonic() + earlier.wait
        while time.monotonic() < until:
            time.sleep(_POLL)
            if _read(self._path) != earlier:
                raise in_use(self._folder)

    def _replace(self) -> None:
        """Replace the earlier holder's file, because the holder may wake and write to its own."""
        new = self._folder / f"{LOCK}-{self.id}"
        try:
            with create_private(new, "xb") as file:
                _flock(file.fileno())
                file.write(_text(self._lease))
                file.flush()
                new.replace(self._path)
                self._descriptor = os.dup(file.fileno())
        except OSError:
            new.unlink(missing_ok=True)
            raise

    def _renew(self) -> None:
        lease = self._lease
        while not self._end.wait(self._interval):
            lease = attrs.evolve(lease, beat=lease.beat + 1)
            with self._writes, contextlib.suppress(OSError):  # a full disk
                if self._descriptor is not None:
                    os.pwrite(self._descriptor, _text(lease), 0)
                    os.fsync(self._descriptor)

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        # Another file may get the number of a closed descriptor: no renewal may be under way.
        with self._writes:
            descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        self._end.set()
        _HELD.pop(str(self._folder), None)
        with contextlib.suppress(OSError):  # the folder was removed
            if _is_at(descriptor, self._path):
                self._path.unlink()
        os.close(descriptor)

    def forget(self) -> None:
        """Leave the lock to the process that has forked this one."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


_HELD: dict[str, RunLock] = {}


def _forget_all() -> None:
    for lock in _HELD.values():
        lock.forget()
    _HELD.clear()


os.register_at_fork(after_in_child=_forget_all)


def is_in_use(folder: Path) -> bool:
    """Return whether a job of this machine holds the lock of a folder."""
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        _flock(descriptor)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def in_use(folder: Path) -> ArgumentError:
    """Return the error of a job whose run directory another job holds."""
    return ArgumentError(
        _RULE,
        received=f"{folder}, which another job uses ({_read(folder / LOCK) or 'it has just begun'})",
        fix=_FIX,
    )


def lock_id(folder: Path) -> str | None:
    """Return the id of the lock under which this process writes to a run directory; None without one."""
    own = _HELD.get(str(folder))
    if own is not None:
        return own.id
    id, _, place = os.environ.get(VARIABLE, "").partition(" ")
    return id if id and place == str(folder) else None


def lock_variable(folder: Path) -> dict[str, str]:
    """Return the environment variable that names the lock for workers which write to a folder."""
    id = lock_id(folder)
    return {VARIABLE: f"{id} {folder}"} if id else {}


def check_lock(folder: Path, id: str | None) -> None:
    """Check that a job still holds the lock ``id`` of its run directory; None if it needs none."""
    if id is None:
        return
    lease = _read(folder / LOCK)
    if lease is None or lease.id != id:
        other = lease or "another job"
        raise CheckpointError(_RULE, received=f"{folder}: {other} has taken it over", fix=_FIX)


def _flock(descriptor: int) -> bool:
    """Lock an open file; return whether the file system can. ``BlockingIOError`` if it is locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOSYS, errno.ENOLCK, errno.EINVAL):
            return False
        raise
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


def _read(path: Path) -> Lease | None:
    """Return the lease in a file; None if there is none."""
    for _ in range(3):  # it may be read while it is written
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
            return Lease(**{**found, "wait": float(found["wait"])})
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            time.sleep(0.01)
    return None


def _text(lease: Lease) -> bytes:
    return json.dumps(attrs.asdict(lease)).encode()
