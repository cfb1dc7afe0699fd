"""Sums on two levels: the ranks of a host in shared memory, and the hosts over MPI messages.

On each host, the first ranks sum one share each, and exchange it with the ranks of the same number on the
other hosts. So hosts exchange as few bytes as with one rank per host, and several ranks send them.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from tfdistr.collectives.mpi.message_sums import (
    PLAIN,
    Addition,
    Array,
    MessageSum,
    Wait,
    run_behind,
    shares,
    single,
)  # fmt: skip
from tfdistr.errors import JobMismatchError

# Bytes of a piece. A piece is still in a cache when the other ranks read it.
_PIECE = 1 << 19
# With other hosts: smaller pieces, each of them a message, took up to three times as long for 44 MB.
_LARGE_PIECE = 1 << 21
# Numbers that different ranks write, and that other ranks poll, have separate cache lines.
_LINE = 128
_HEAD = 4 * _LINE


class _Board:
    """The memory of a host: two slots of each rank for pieces of its rows, and numbers of its progress.

    Three numbers show the progress of a rank: the pieces that it has written, the pieces for which it has
    summed its share, and the pieces for which it has read the results of the others. It writes the length of
    the rows with each piece.
    """

    def __init__(self, comm: MPI.Intracomm, memory: Array, wait: Wait) -> None:
        self._index, self._wait = comm.Get_rank(), wait
        segments = memory.reshape(comm.Get_size(), -1)
        #: Bytes of a slot.
        self.piece = (segments.shape[1] - _HEAD) // 2
        self._window = MPI.Win.Create(None, comm=comm)  # empty: only for Sync
        self._window.Lock_all(MPI.MODE_NOCHECK)
        self.written, self.summed, self.read, self._bytes = (
            [segment[line : line + 16].view(np.int64) for segment in segments]
            for line in range(0, _HEAD, _LINE)
        )
        self._places = [segment[_HEAD:].reshape(2, self.piece) for segment in segments]

    def slots(self, place: int, counts: Sequence[int], own: Array) -> list[Array]:
        """Return the rows of each rank in this slot, as wide as ``own`` and of its type."""
        width = own.shape[1]
        return [
            places[place, : count * width * own.itemsize].view(own.dtype).reshape(count, width)
            for places, count in zip(self._places, counts, strict=True)
        ]

    def show(self, piece: int, row: int) -> list[int]:
        """Show the own piece, and wait for those of the others; return the bytes of a row of each rank."""
        self._bytes[self._index][piece % 2] = row
        self.tell(self.written, piece)
        self.until(self.written, piece)
        return [int(number[piece % 2]) for number in self._bytes]

    def until(self, numbers: Sequence[Array], least: int) -> None:

        def is_done() -> bool:
            return all(number[0] >= least for number in numbers)

        if not is_done():  # a wait takes longer than a check
            self._wait(is_done)
        self._window.Sync()

    def tell(self, numbers: Sequence[Array], piece: int) -> None:
        self._window.Sync()  # others must see the data before the number
        numbers[self._index][0] = piece

    def free(self) -> None:
        """Free the window: MPICH on libfabric cannot finalize while it exists."""
        self._window.Unlock_all()
        self._window.Free()


class SharedSum:
    """Sums of rows of numbers of all ranks, in place and piece by piece.

    With two ranks, each rank shows its piece to the other rank, and adds the other piece to its own. With
    more ranks, each rank shows the others their shares of its piece, and writes the sum of its own share
    there. With other hosts, a rank sums its share over the hosts before it shows it. While a piece travels,
    the ranks sum the next one on the host.

    Args:
        comm: The ranks of this host. All of them call this.
        memory: The memory that they share; see ``shared_memory``.
        hosts: The workers of each host; the ranks of this one are those of ``hosts[own]``.
        across: Sums the share of this rank over the hosts, if there are others and this rank has a share.
    """

    def __init__(
        self,
        comm: MPI.Intracomm,
        memory: Array,
        hosts: Sequence[range],
        own: int,
        wait: Wait,
        across: MessageSum | None = None,
    ) -> None:
        self._index, self._across, self._board = comm.Get_rank(), across, _Board(comm, memory, wait)
        self._workers, self._all = hosts[own], hosts[-1].stop
        self._groups = single(self._workers)
        self._alone = len(hosts) == 1
        #: The number of ranks of each host that sum a share, so that each has a rank for it on every host.
        self._adders = min(map(len, hosts))
        self._pieces = 0

    def add(self, rows: Array, addition: Addition) -> Array:
        counts = [addition.rows(workers) for workers in self._groups]
        # Pieces are equally long on all hosts.
        most = max(map(addition.rows, single(range(self._all))))
        items = self._board.piece // (rows.itemsize * most)
        pieces = (rows[:, start : start + items] for start in range(0, rows.shape[1], items))
        row = rows.shape[1] * rows.itemsize
        run_behind((self._steps(own, counts, row, addition) for own in pieces), 0 if self._alone else 1)
        total: Array = rows[0]
        return total

    def _steps(self, own: Array, counts: Sequence[int], row: int, addition: Addition) -> Iterator[None]:
        """Sum one piece on the host; then, in a second step, wait for the other hosts, and read the sum."""
        self._pieces += 1
        piece, board = self._pieces, self._board
        shown = board.slots(piece % 2, counts, own)
        # The last use of this slot was two pieces ago: all ranks must have read that piece.
        board.until(board.read, piece - 2)
        if self._alone and len(shown) == 2 and max(counts) == 1:
            shown[self._index][:] = own
            self._check(board.show(piece, row))
            parts = [own if rank == self._index else shown[rank] for rank in range(2)]
            addition.total(parts, self._groups, own)
        else:
            width = own.shape[1]
            bounds = [*shares(width, self._adders), *[slice(0, 0)] * (len(shown) - self._adders)]
            share = bounds[self._index]
            mine = shown[self._index]
            mine[:, : share.start] = own[:, : share.start]
            mine[:, share.stop :] = own[:, share.stop :]
            self._check(board.show(piece, row))
            parts = [part[:, share] for part in shown]
            parts[self._index] = own[:, share]
            yield from self._add_share(parts, addition, mine[:1, share])
            board.tell(board.summed, piece)
            board.until(board.summed, piece)
            for part, each in zip(shown, bounds, strict=True):
                own[0, each] = part[0, each]
        board.tell(board.read, piece)

    def _add_share(self, parts: Sequence[Array], addition: Addition, out: Array) -> Iterator[None]:
        if self._across is None:
            if self._alone:
                addition.total(parts, self._groups, out)
            yield
            return
        total = np.empty((addition.rows(self._workers), out.shape[1]), out.dtype)
        addition.total(parts, self._groups, total)
        yield from self._across.steps(total, addition, out)

    def free(self) -> None:
        self._board.free()

    def _check(self, sizes: Sequence[int]) -> None:
        if len(set(sizes)) > 1:
            of_workers = zip(self._groups, sizes, strict=True)
            found = ", ".join(f"{size} on worker {worker}" for [worker], size in of_workers)
            raise JobMismatchError(
                "The workers sum tensors of different shapes or types.",
                received=f"numbers of bytes: {found}",
                fix="Have each worker reduce the same tensors in the same order.",
            )


def shared_memory(comm: MPI.Intracomm, size: int) -> Array | None:
    """Map new memory of ``size`` bytes, all 0, in all ranks of a host; None if one of them cannot.

    The memory has no name, so nothing is left of it when the ranks are killed. MPI's own shared windows have
    names in /dev/shm while they are made.
    """
    mark = secrets.token_bytes(_MARK)
    with contextlib.ExitStack() as files:
        file, memory = -1, None
        with contextlib.suppress(OSError, AttributeError):  # only Linux has it
            if comm.Get_rank() == 0:
                file = os.memfd_create("tfdistr")
                files.callback(os.close, file)
                os.ftruncate(file, size)
                os.pwrite(file, mark, 0)
        path, mark = comm.bcast((f"/proc/{os.getpid()}/fd/{file}", mark))
        with contextlib.suppress(OSError, ValueError):
            if comm.Get_rank():
                file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                files.callback(os.close, file)
            # In a container, the path may be that of another process.
            if os.pread(file, _MARK, 0) == mark:
                memory = np.frombuffer(mmap.mmap(file, size), np.uint8)
        if not comm.allreduce(memory is not None, MPI.LAND):
            return None
    if comm.Get_rank() == 0 and memory is not None:
        memory[:_MARK] = 0
    comm.Barrier()
    return memory


_MARK = 16  # bytes
# More ranks than this on one host use MPI: there each rank reads less than the arrays of all other ranks.
_MOST = 4
# Up to this many bytes, one MPI reduction takes half the time of two levels.
_SMALL = 1 << 16


class TwoLevels:
    """Sums on two levels, except where MPI's reduction is faster."""

    def __init__(self, hosts: Sequence[range], levels: SharedSum, by_mpi: MessageSum) -> None:
        self._levels, self._by_mpi = levels, by_mpi
        ranks, alike = hosts[-1].stop, len(set(map(len, hosts))) == 1
        # MPI halves the ranks. On two equal hosts, it sends as few bytes as two levels if all halves are
        # equal, and 2.5 times as many on 2 x 3 ranks. On three hosts it sends up to 1.5 instead of 1.33, but
        # sooner.
        self._mpi_is_faster = len(hosts) > 2 or (alike and ranks & (ranks - 1) == 0)

    def add(self, rows: Array, addition: Addition) -> Array:
        mpi_is_faster = addition is PLAIN and (self._mpi_is_faster or rows.nbytes <= _SMALL)
        return (self._by_mpi if mpi_is_faster else self._levels).add(rows, addition)

    def free(self) -> None:
        self._levels.free()


def sums_of(comm: MPI.Intracomm, wait: Wait) -> MessageSum | SharedSum | TwoLevels:
    """Choose how the ranks of ``comm`` sum; all call this. ``wait`` polls, and fails with a rank."""
    own, size = comm.Get_rank(), comm.Get_size()
    here: Any = comm.Split_type(MPI.COMM_TYPE_SHARED, key=own)
    hosts = _hosts(comm, here)
    by_mpi = MessageSum(comm, single(range(size)), wait)
    if hosts is None or len(hosts) == size or (len(hosts) == 1 and size > _MOST):
        return by_mpi
    piece = _PIECE if len(hosts) == 1 else _LARGE_PIECE
    memory = shared_memory(here, here.Get_size() * (_HEAD + 2 * piece))
    if not comm.allreduce(memory is not None, MPI.LAND) or memory is None:
        return by_mpi
    if len(hosts) == 1:
        return SharedSum(here, memory, hosts, 0, wait)
    number = next(number for number, host in enumerate(hosts) if own in host)
    place, adders = here.Get_rank(), min(map(len, hosts))
    # All ranks take part in the split; a rank without a share gets no communicator.
    between: Any = comm.Split(place if place < adders else MPI.UNDEFINED, own)
    across = MessageSum(between, hosts, wait) if place < adders else None

    def wait_for_host(done: Callable[[], bool]) -> None:
        wait(lambda: done() or (across is not None and across.progress()))  # messages progress meanwhile

    return TwoLevels(hosts, SharedSum(here, memory, hosts, number, wait_for_host, across), by_mpi)


def _hosts(comm: MPI.Intracomm, here: MPI.Intracomm) -> list[range] | None:
    """Return the ranks of each host; None if those of a host do not follow each other."""
    of_ranks = comm.allgather((here.bcast(comm.Get_rank()), here.Get_size()))
    hosts = [range(first, first + size) for first, size in dict.fromkeys(of_ranks)]
    in_order = itertools.chain.from_iterable(hosts)
    if list(in_order) != list(range(comm.Get_size())):
        return None
    return hosts if all(rank in range(f, f + n) for rank, (f, n) in enumerate(of_ranks)) else None
