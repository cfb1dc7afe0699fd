"""Sums over the ranks of one machine, in memory that all of them have mapped (MPI-3's shared windows)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI

from tfdistr.communication.sum_tree import SumTree
from tfdistr.errors import JobMismatchError

Array = np.ndarray[Any, Any]

# More ranks than this use MPI: there each rank reads less than the arrays of all other ranks.
_MOST = 4
# Bytes of a piece. A piece is still in a cache when the other ranks read it.
_PIECE = 1 << 19
# Numbers that different ranks write, and that other ranks poll, have separate cache lines.
_LINE = 128
_HEAD = 4 * _LINE


class SharedSum:
    """Sums arrays of all ranks in place, piece by piece.

    A rank has two places for pieces of its array, and writes the length of the array with each. With two
    ranks, each rank shows its piece to the other rank, and adds the other piece to its own. With more ranks,
    each rank shows the others their shares of its piece; it writes the sum of its own share there, too. Three
    numbers show the progress of a rank: the pieces that it has written, the pieces for which it has summed
    its share, and the pieces for which it has read the results of the others.

    Args:
        window: The memory, with a segment for each rank.
        ranks: Number of ranks.
        index: This rank.
        wait: Called with a function. It returns when the function returns True, and raises an error if a rank
            has failed.
    """

    def __init__(
        self, window: MPI.Win, ranks: int, index: int, wait: Callable[[Callable[[], bool]], None]
    ) -> None:
        self._window, self._wait, self._index = window, wait, index
        segments = [_segment(window, rank) for rank in range(ranks)]
        self._written, self._summed, self._read, self._bytes = (
            [segment[line : line + 16].view(np.int64) for segment in segments]
            for line in range(0, _HEAD, _LINE)
        )
        self._places = [segment[_HEAD:].reshape(2, _PIECE) for segment in segments]
        self._pieces = 0

    @classmethod
    def of(cls, comm: MPI.Intracomm, wait: Callable[[Callable[[], bool]], None]) -> SharedSum | None:
        """Make one for the ranks of ``comm``. All of them call this. None if they have no shared memory."""
        here: Any = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.Get_rank())
        ranks, index = comm.Get_size(), comm.Get_rank()
        window = None
        if comm.allreduce(1 < here.Get_size() == ranks <= _MOST, MPI.LAND):
            window = MPI.Win.Allocate_shared(_HEAD + 2 * _PIECE, 1, comm=here)
        here.Free()
        if window is None:
            return None
        _segment(window, index)[:_HEAD] = 0
        window.Lock_all()
        window.Sync()
        comm.Barrier()
        return cls(window, ranks, index, wait)

    def add(self, array: Array, tree: SumTree | None = None) -> None:
        """Replace ``array`` by the sum of the ranks' arrays, which have one dimension and the same type.

        The sum is the same to the bit on all ranks.

        Args:
            array: This rank's numbers.
            tree: The order of the additions; each rank has one of its nodes. By default, the order of the
                ranks.

        Raises:
            JobMismatchError: The arrays do not have the same number of bytes.
        """
        items = _PIECE // array.itemsize
        for start in range(0, array.size, items):
            own = array[start : start + items]
            self._pieces += 1
            place = self._pieces % 2
            shown = [places[place, : own.nbytes].view(own.dtype) for places in self._places]
            # The last use of this place was two pieces ago: all ranks must have read that piece.
            self._until(self._read, self._pieces - 2)
            self._bytes[self._index][place] = array.nbytes
            if len(shown) == 2:
                self._add_other(own, shown, place)
            else:
                self._add_shares(own, shown, place, tree)
            self._tell(self._read)

    def _add_other(self, own: Array, shown: Sequence[Array], place: int) -> None:
        shown[self._index][:] = own
        self._show(place)
        np.add(own, shown[1 - self._index], out=own)

    def _add_shares(self, own: Array, shown: Sequence[Array], place: int, tree: SumTree | None) -> None:
        bounds = shares(own.size, len(shown))
        mine, first, end = shown[self._index], bounds[self._index].start, bounds[self._index].stop
        mine[:first] = own[:first]
        mine[end:] = own[end:]
        self._show(place)
        parts = [part[first:end] for part in shown]
        parts[self._index] = own[first:end]
        if tree is None:
            sums = np.add(parts[0], parts[1], out=mine[first:end])
            for more in parts[2:]:
                np.add(sums, more, out=sums)
        else:
            of_node = {node: part for [node], part in zip(tree.all_nodes, parts, strict=True)}
            mine[first:end] = tree.total(of_node.__getitem__, np.add, known=set(of_node))
        self._tell(self._summed)
        self._until(self._summed, self._pieces)
        for part, share in zip(shown, bounds, strict=True):
            own[share] = part[share]

    def _show(self, place: int) -> None:
        self._tell(self._written)
        self._until(self._written, self._pieces)
        self._check_sizes(place)

    def free(self) -> None:
        """Free the memory. All ranks call this, and use this object no more.

        MPICH on libfabric cannot end while the memory exists.
        """
        self._window.Unlock_all()
        self._window.Free()

    def _check_sizes(self, place: int) -> None:
        sizes = [int(number[place]) for number in self._bytes]
        if len(set(sizes)) > 1:
            found = ", ".join(f"{size} on worker {worker}" for worker, size in enumerate(sizes))
            raise JobMismatchError(
                "All workers must sum tensors of the same shape and type.",
                received=f"numbers of bytes: {found}",
                fix="Have each worker reduce the same tensors in the same order.",
            )

    def _until(self, numbers: Sequence[Array], least: int) -> None:
        def come() -> bool:
            return all(number[0] >= least for number in numbers)

        if not come():  # a wait takes longer than a look
            self._wait(come)
        self._window.Sync()

    def _tell(self, numbers: Sequence[Array]) -> None:
        self._window.Sync()  # others must see the data before the number
        numbers[self._index][0] = self._pieces


def shares(size: int, ranks: int) -> list[slice]:
    """Return the part of ``size`` numbers that each rank sums."""
    bounds = [size * rank // ranks for rank in range(ranks + 1)]
    return [slice(first, end) for first, end in itertools.pairwise(bounds)]


def _segment(window: MPI.Win, rank: int) -> Array:
    memory: Any = window.Shared_query(rank)[0]
    return np.frombuffer(memory, np.uint8)
