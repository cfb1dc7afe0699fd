"""Sums on two levels: the ranks of a host in shared memory, and the hosts over MPI messages.

On each host, the first ranks sum one share each, and exchange it with the ranks of the same number on the
other hosts. So hosts exchange as few bytes as with one rank per host, and several ranks send them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from mpi4py import MPI

from tfdistr.collectives.mpi.message_sums import PLAIN, Addition, Array, MessageSum, Wait, single
from tfdistr.collectives.mpi.shared_memory import SharedSum

# More ranks than this on one host use MPI: there each rank reads less than the arrays of all other ranks.
_MOST = 4
# Up to this many bytes, one MPI reduction takes half the time of two levels.
_SMALL = 1 << 16


class Sums(Protocol):
    """Sums of the rows of all ranks."""

    @property
    def sent(self) -> int:
        """Bytes that this rank has sent to others, except for sums that MPI adds."""

    def add(self, rows: Array, addition: Addition) -> Array:
        """Replace the first of this rank's rows by the sum of the ranks' rows, and return it."""

    def free(self) -> None:
        """Free what the ranks share. All ranks call this."""


class TwoLevels:
    """Sums on two levels, except where MPI's reduction is faster.

    Args:
        hosts: The ranks of each host.
        levels: Sums on both levels.
        by_mpi: Sums over all ranks.
    """

    def __init__(self, hosts: Sequence[range], levels: SharedSum, by_mpi: MessageSum) -> None:
        self._levels, self._by_mpi = levels, by_mpi
        ranks, alike = hosts[-1].stop, len(set(map(len, hosts))) == 1
        # MPI halves the ranks. On two equal hosts, it sends as few bytes as two levels if all halves are
        # equal, and 2.5 times as many on 2 x 3 ranks. On three hosts it sends up to 1.5 instead of 1.33, but
        # sooner.
        self._mpi_is_faster = len(hosts) > 2 or (alike and ranks & (ranks - 1) == 0)

    @property
    def sent(self) -> int:
        return self._levels.sent + self._by_mpi.sent

    def add(self, rows: Array, addition: Addition) -> Array:
        mpi_is_faster = addition is PLAIN and (self._mpi_is_faster or rows.nbytes <= _SMALL)
        return (self._by_mpi if mpi_is_faster else self._levels).add(rows, addition)

    def free(self) -> None:
        self._levels.free()


def sums_of(comm: MPI.Intracomm, wait: Wait) -> Sums:
    """Choose how the ranks of ``comm`` sum. All of them call this.

    Args:
        comm: The communicator.
        wait: Called with a function. It returns when the function returns True, and raises an error if a rank
            has failed.
    """
    own, size = comm.Get_rank(), comm.Get_size()
    here: Any = comm.Split_type(MPI.COMM_TYPE_SHARED, key=own)
    hosts = _hosts(comm, here)
    by_mpi = MessageSum(comm, single(range(size)), wait)
    if hosts is None or len(hosts) == size or (len(hosts) == 1 and size > _MOST):
        return by_mpi
    if len(hosts) == 1:
        return SharedSum(here, hosts, 0, wait)
    number = next(number for number, host in enumerate(hosts) if own in host)
    place, adders = here.Get_rank(), min(map(len, hosts))
    # All ranks take part in the split; a rank without a share gets no communicator.
    between: Any = comm.Split(place if place < adders else MPI.UNDEFINED, own)
    if place >= adders:
        return TwoLevels(hosts, SharedSum(here, hosts, number, wait), by_mpi)
    across = MessageSum(between, hosts, wait)

    def wait_for_host(done: Callable[[], bool]) -> None:
        wait(lambda: done() or across.progress())  # messages progress meanwhile

    return TwoLevels(hosts, SharedSum(here, hosts, number, wait_for_host, across), by_mpi)


def _hosts(comm: MPI.Intracomm, here: MPI.Intracomm) -> list[range] | None:
    """Return the ranks of each host; None if those of a host do not follow each other."""
    of_ranks = comm.allgather((here.bcast(comm.Get_rank()), here.Get_size()))
    hosts = [range(first, first + size) for first, size in dict.fromkeys(of_ranks)]
    in_order = itertools.chain.from_iterable(hosts)
    if list(in_order) != list(range(comm.Get_size())):
        return None
    return hosts if all(rank in range(f, f + n) for rank, (f, n) in enumerate(of_ranks)) else None
