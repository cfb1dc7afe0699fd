"""Memory that the workers of one host share, so that it holds each example once, not once for each worker.

A file without a name holds this memory. The first worker of a host makes the file, and the others open it
through ``/proc``. After the last worker has ended, in any way, nothing of the file is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import math
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

log = logging.getLogger("tfdistr")

_ALIGNMENT = 64
# A pid is unique among the processes for which all of these are equal.
_HOST = ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid", "/proc/self/ns/user")

Part = tuple[tuple[int, ...], np.dtype[Any]]


class HostMemory:
    """Arrays of zeros. The workers of a host share them if that is possible; else each process has its own.

    All workers must request the same arrays in the same order.

    Args:
        file: Descriptor of the file that holds them. Only this process uses it. None for no file.
    """

    def __init__(self, file: int | None = None) -> None:
        self._file = file
        self._end = 0
        self._threads = threading.Lock()

    @classmethod
    def join(cls, exchange: Callable[[str], list[str]]) -> HostMemory:
        """Open the memory of this worker's host. All workers must call it.

        Args:
            exchange: Returns the texts that the workers pass to it, in the order of the workers.
        """
        try:
            file = os.memfd_create("tfdistr")
            own = [_host(), os.getpid(), file, os.fstat(file).st_ino]
        except (AttributeError, OSError):  # not Linux, or a system that forbids it
            exchange("null")
            return cls()
        workers = [json.loads(text) for text in exchange(json.dumps(own))]
        first = next(worker for worker in workers if worker and worker[0] == own[0])
        if first == own:
            return cls(file)
        os.close(file)
        try:
            return cls(_open(*first[1:]))
        except OSError as error:
            _not_shared(error)
            return cls()

    def arrays(self, parts: Sequence[Part]) -> list[np.ndarray[Any, Any]]:
        """Make arrays of these shapes and types, all in shared memory or all in memory of this process."""
        starts, size = [], 0
        for shape, kind in parts:
            starts.append(size)
            size += -(-math.prod(shape) * kind.itemsize // _ALIGNMENT) * _ALIGNMENT
        memory = self._map(size) if self._file is not None and size else None
        if memory is None:
            return [np.zeros(shape, kind) for shape, kind in parts]
        return [
            np.frombuffer(memory, kind, math.prod(shape), start).reshape(shape)
            for start, (shape, kind) in zip(starts, parts, strict=True)
        ]

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

    def _map(self, size: int) -> mmap.mmap | None:
        assert self._file is not None
        start = self._end
        end = start + size
        try:
            with self.lock():
                # Allocate it now: a write to memory that is not available would end the process.
                if os.fstat(self._file).st_size < end:
                    os.posix_fallocate(self._file, start, size)
            memory = mmap.mmap(self._file, size, offset=start)
        except OSError as error:
            _not_shared(error)
            # Later arrays would not be at the same places as in the other workers.
            os.close(self._file)
            self._file = None
            return None
        self._end = -(-end // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        return memory


def _host() -> str:
    return " ".join([Path(_HOST[0]).read_text().strip(), *map(os.readlink, _HOST[1:])])


def _open(pid: int, descriptor: int, number: int) -> int:
    """Open a file of another process anew, so that a lock of this process locks out the other process."""
    file = os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    if os.fstat(file).st_ino == number:
        return file
    os.close(file)
    raise OSError(f"the file of process {pid} is not there any more")


def _not_shared(error: OSError) -> None:
    log.warning("This worker keeps examples in memory of its own, not in that of its host: %s", error)
