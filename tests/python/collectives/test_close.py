"""The end of the exchange over MPI, with and without a rank that has failed."""

from types import SimpleNamespace

import pytest

from tfdistr.collectives.mpi import collectives
from tfdistr.collectives.mpi.collectives import MpiCollectives


@pytest.mark.parametrize("all_come", [True, False])
def test_memory_is_freed_by_all_ranks_or_by_none(monkeypatch, all_come):
    monkeypatch.setattr(collectives, "_CLOSING", 0.05)
    did: list[str] = []
    closing = object.__new__(MpiCollectives)
    closing._barriers = SimpleNamespace(Ibarrier=lambda: SimpleNamespace(Test=lambda: all_come))
    closing._sums = SimpleNamespace(free=lambda: did.append("free"))
    closing._lifelines = SimpleNamespace(say_goodbye=lambda: did.append("goodbye"))
    closing._end = lambda: did.append("end")
    closing.close()
    assert did == (["free", "goodbye", "end"] if all_come else ["goodbye"])
