"""Sums over MPI messages, and the additions that they make."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from mpi4py import MPI

from tfdistr.collectives.sum_tree import SumTree

Array = np.ndarray


class Addition(Protocol):
    """The order and the precision of a sum."""

    def rows(self, workers: range) -> int:
        """Return the number of rows that stand for these workers."""

    def total(self, parts: Sequence[Array], groups: Sequence[range], out: Array) -> None:
        """Add the parts into ``out``, which receives the rows of all groups and may be one of the parts."""


class _OneRow:
    def rows(self, workers: range) -> int:
        return 1


class Plain(_OneRow):
    """Addition in the order of the workers."""

    def total(self, parts: Sequence[Array], groups: Sequence[range], out: Array) -> None:
        if len(parts) == 1:
            out[:] = parts[0]
            return
        np.add(parts[0], parts[1], out=out)
        for more in parts[2:]:
            np.add(out, more, out=out)


class OfHalves(_OneRow):
    """Addition of 16-bit numbers in 32 bits; each sum is rounded once."""

    def total(self, parts: Sequence[Array], groups: Sequence[range], out: Array) -> None:
        sums = parts[0].astype(np.float32)
        for more in parts[1:]:
            sums += more
        out[:] = sums


class InOrderAddition:
    """Addition in the order of a tree: bitwise identical on any number of workers and hosts."""

    def __init__(self, tree: SumTree) -> None:
        self._tree = tree

    def rows(self, workers: range) -> int:
        return len(self._tree.nodes_of(workers))

    def total(self, parts: Sequence[Array], groups: Sequence[range], out: Array) -> None:
        nodes = [node for workers in groups for node in self._tree.nodes_of(workers)]
        value = dict(zip(nodes, (row for part in parts for row in part), strict=True))
        roots = self._tree.nodes_of(range(groups[0].start, groups[-1].stop))
        if len(roots) == 1 and len(nodes) == 2:  # saves a copy
            np.add(value[nodes[0]], value[nodes[1]], out=out[0])
            return
        for row, root in enumerate(roots):
            out[row] = self._tree.total(value.__getitem__, np.add, root, known=value)


PLAIN, OF_HALVES = Plain(), OfHalves()


#: A function that waits until its argument returns True, and raises an error if a rank has failed.
Wait = Callable[[Callable[[], bool]], None]

# Numbers in one sum: larger sums took twice as long for 44 MB.
_AT_ONCE = 1 << 20
# Up to this many bytes of all ranks, one exchange of everything is faster than two of shares.
_SMALL = 1 << 16


class MessageSum:
    """Sums of rows of numbers over a communicator; ``groups`` are the workers of each rank's sums."""

    def __init__(self, comm: MPI.Intracomm, groups: Sequence[range], wait: Wait) -> None:
        self._comm, self._groups, self._wait = comm, groups, wait
        self._index = comm.Get_rank()

    def add(self, rows: Array, addition: Addition) -> Array:
        """Replace the first of this rank's rows by the sum of the ranks' rows, and return it."""
        size, total = rows.shape[1], rows[:1]
        pieces = (slice(start, start + _AT_ONCE) for start in range(0, size, _AT_ONCE))
        if addition is PLAIN:
            for piece in pieces:
                self._wait(self._comm.Iallreduce(MPI.IN_PLACE, rows[0, piece]).Test)
        else:
            run_behind(self.steps(rows[:, piece], addition, total[:, piece]) for piece in pieces)
        own: Array = total[0]
        return own

    def steps(self, rows: Array, addition: Addition, out: Array) -> Iterator[None]:
        """Send ``rows``; then, in a second step, wait for the sum, and write it to ``out``."""
        width, item, ranks = rows.shape[1], rows.itemsize, len(self._groups)
        counts = np.array([addition.rows(workers) for workers in self._groups])
        most = int(counts.max())
        # Between two ranks, all numbers take as many bytes as shares and their sums.
        whole = (ranks == 2 and most == 1) or most * width * item * ranks <= _SMALL
        parts = [slice(0, width)] * ranks if whole else shares(width, ranks)
        sizes = np.array([part.stop - part.start for part in parts])
        own = int(sizes[self._index])
        given = np.empty((int(counts.sum()), own), rows.dtype)
        come = [given.view(np.uint8), counts * own * item]
        if whole:
            request = self._comm.Iallgatherv(np.ascontiguousarray(rows).view(np.uint8), come)
        else:
            cut = rows if len(rows) == 1 else np.concatenate([rows[:, part].reshape(-1) for part in parts])
            to = len(rows) * sizes * item
            request = self._comm.Ialltoallv([cut.view(np.uint8), to], come)
        yield
        self._wait(request.Test)
        each = np.split(given, np.cumsum(counts)[:-1])
        if whole:
            addition.total(each, self._groups, out)
            return
        total = np.empty((1, own), rows.dtype)
        addition.total(each, self._groups, total)
        self._wait(self._comm.Iallgatherv(total.view(np.uint8), [out.view(np.uint8), sizes * item]).Test)

    def progress(self) -> bool:
        """Let MPI send and receive, which it does only in a call. Return False."""
        self._comm.Iprobe()
        return False

    def free(self) -> None:
        """Do nothing: messages leave no memory."""


def run_behind(all_steps: Iterable[Iterator[None]], behind: int = 1) -> None:
    """Run the first step of each item, and its second step ``behind`` items later."""
    begun: collections.deque[Iterator[None]] = collections.deque()
    for steps in itertools.chain(all_steps, [None] * behind):
        if steps is not None:
            next(steps, None)
            begun.append(steps)
        if begun and (steps is None or len(begun) > behind):
            next(begun.popleft(), None)


def shares(size: int, ranks: int) -> list[slice]:
    """Return the part of ``size`` numbers that each rank sums."""
    bounds = [size * rank // ranks for rank in range(ranks + 1)]
    return [slice(first, end) for first, end in itertools.pairwise(bounds)]


def single(workers: range) -> list[range]:
    """Return each worker as a group of its own."""
    return [range(worker, worker + 1) for worker in workers]
