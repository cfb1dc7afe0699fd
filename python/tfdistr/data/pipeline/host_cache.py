"""Memory that the workers of one host share: it holds each example once, not once per worker.

An unnamed file holds this memory. The first worker of a host makes the file, and the others open it through
``/proc``. After the last worker has exited, in any way, nothing of the file is left. Data that is larger than
the memory is in unnamed files on the disk, in the same way.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import math
import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tfdistr.data.trees import Array
from tfdistr.utils.processes import running_system

log = logging.getLogger("tfdistr")

_ALIGNMENT = 64
# A pid is unique among the processes of a system for which these are equal.
_HOST = ("/proc/self/ns/pid", "/proc/self/ns/user")

Part = tuple[tuple[int, ...], np.dtype]


class HostMemory:
    """Arrays of zeros. The workers of a host share them if possible; otherwise each process has its own.

    All workers must request the same arrays in the same order. Only this process may use ``file``.
    """

    #: Whether rows are read from a disk in random order.
    _at_random = False

    def __init__(self, file: int | None = None, disk: HostDisk | None = None) -> None:
        self._file = file
        self._disk = disk
        self._end = 0
        self._refused: OSError | None = None
        self._threads = threading.Lock()

    @property
    def disk(self) -> HostDisk:
        """Arrays in a file on the disk; ``OSError`` if the folder for temporary files takes no file."""
        if self._disk is None:
            self._disk = HostDisk(*_unnamed_files())
        return self._disk

    @classmethod
    def join(cls, exchange: Callable[[str], list[str]]) -> HostMemory:
        """Open the memory of this worker's host. All workers must call it."""
        try:
            file = os.memfd_create("tfdistr")
            own = [_host(), os.getpid(), file, os.fstat(file).st_ino]
        except (AttributeError, OSError):  # not Linux, or a system that forbids it
            exchange("null")
            return cls()
        on_disk: tuple[int, ...]
        try:
            on_disk = _unnamed_files()
        except OSError:  # an error only for the job that needs the disk
            on_disk = ()
        own.append([[one, os.fstat(one).st_ino] for one in on_disk])
        workers = [json.loads(text) for text in exchange(json.dumps(own))]
        first = next(worker for worker in workers if worker and worker[0] == own[0])
        if first == own:
            return cls(file, HostDisk(*on_disk) if on_disk else None)
        for one in (file, *on_disk):
            os.close(one)
        try:
            _, pid, *of_memory, of_disk = first
            disk = HostDisk(*(_open(pid, *one) for one in of_disk)) if of_disk else None
            return cls(_open(pid, *of_memory), disk)
        except OSError as error:
            _not_shared(error)
            return cls()

    def arrays(self, parts: Sequence[Part]) -> list[Array]:
        """Make arrays of these shapes and types, all in shared memory or all in memory of this process."""
        if self._file is not None and self._refused is None:
            try:
                return self._shared(parts)
            except OSError as error:
                _not_shared(error)
        return [np.zeros(shape, kind) for shape, kind in parts]

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Lock out the other workers. This worker sees all data that they wrote before, on any processor."""
        with self._threads:
            if self._file is None:
                yield
                return
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def _shared(self, parts: Sequence[Part]) -> list[Array]:
        assert self._file is not None
        starts, size = [], 0
        for shape, kind in parts:
            starts.append(size)
            size += -(-math.prod(shape) * kind.itemsize // _ALIGNMENT) * _ALIGNMENT
        size = max(size, _ALIGNMENT)
        end = self._end + size
        try:
            with self.lock():
                # Allocate it now: a write to memory that is not available would kill the process.
                if os.fstat(self._file).st_size < end:
                    os.posix_fallocate(self._file, self._end, size)
            memory = mmap.mmap(self._file, size, offset=self._end)
        except OSError as error:
            self._refused = error  # later arrays would not be at the same places as in the other workers
            raise
        if self._at_random:
            memory.madvise(mmap.MADV_RANDOM)
        self._end = -(-end // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        return [
            np.frombuffer(memory, kind, math.prod(shape), start).reshape(shape)
            for start, (shape, kind) in zip(starts, parts, strict=True)
        ]


class HostDisk(HostMemory):
    """Arrays of zeros in a file on the disk, and bytes of any length in another file.

    The files are in the folder of the environment variable TMPDIR; else in /var/tmp, which is on a disk where
    /tmp may be in memory.

    Args:
        file: Descriptor of the file for arrays. Only this process uses it.
        heap: Descriptor of the file for bytes.
    """

    _at_random = True

    def __init__(self, file: int, heap: int) -> None:
        super().__init__(file)
        self._heap = heap

    def arrays(self, parts: Sequence[Part]) -> list[Array]:
        """Make arrays of these shapes and types; ``OSError`` if the disk has not enough space."""
        if self._refused is not None:
            raise self._refused
        return self._shared(parts)

    def put(self, values: Sequence[bytes]) -> Array:
        """Store bytes. Returns the position and the length of each, an int64 array of shape (values, 2)."""
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        with self.lock():
            start = os.fstat(self._heap).st_size
            written, data = 0, memoryview(b"".join(values))
            while written < len(data):
                written += os.pwrite(self._heap, data[written:], start + written)
        return np.stack([start + np.cumsum(lengths) - lengths, lengths], axis=1)

    def get(self, extents: Array) -> Array:
        """Return the bytes with these positions and lengths, as an array of objects."""
        found = np.empty(len(extents), object)
        found[:] = [os.pread(self._heap, length, start) for start, length in extents.tolist()]
        return found


def _unnamed_files() -> tuple[int, int]:
    """Make two empty files on the disk that no folder has."""
    folder = os.environ.get("TMPDIR") or ("/var/tmp" if os.path.isdir("/var/tmp") else None)

    def one() -> int:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return os.dup(file.fileno())

    return one(), one()


def _host() -> str:
    return " ".join([running_system(), *map(os.readlink, _HOST)])


def _open(pid: int, descriptor: int, number: int) -> int:
    """Reopen a file of another process, so that a lock of this process locks out the other process."""
    file = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    if os.fstat(file).st_ino == number:
        return file
    os.close(file)
    raise OSError(f"the file of process {pid} was removed")


def _not_shared(error: OSError) -> None:
    log.warning("This worker keeps examples in its own memory, not in that of its host: %s", error)
