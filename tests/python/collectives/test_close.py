"""The end of the exchange over MPI, with and without a rank that has failed."""

from types import SimpleNamespace

import pytest

from tfdistr.collectives.mpi import collectives
from tfdistr.collectives.mpi.collectives import MpiCollectives
from tfdistr.errors import ClusterStartError
from tfdistr.jobs import worker
from tfdistr.strategies.multi_worker_mirrored import MultiWorkerMirroredStrategy


@pytest.mark.parametrize("all_come", [True, False])
def test_memory_is_freed_by_all_ranks_or_by_none(monkeypatch, all_come):
    monkeypatch.setattr(collectives, "_CLOSING", 0.05)
    did: list[str] = []
    closing = object.__new__(MpiCollectives)
    closing._barriers = SimpleNamespace(Ibarrier=lambda: SimpleNamespace(Test=lambda: all_come))
    closing._sums = SimpleNamespace(free=lambda: did.append("free"))
    closing._lifelines = SimpleNamespace(say_goodbye=lambda: did.append("goodbye"))
    closing._end = lambda: did.append("end")
    assert closing.close() is all_come
    assert did == (["free", "goodbye", "end"] if all_come else ["goodbye"])


@pytest.mark.parametrize(("comes", "closes"), [(True, True), (True, False), (False, True)])
def test_mpi_ends_only_if_all_ranks_leave(monkeypatch, comes, closes):
    """``MPI_Finalize`` would wait for a rank that has gone, or for a lost PMI."""
    did: list[str] = []
    monkeypatch.setattr(worker, "finish", lambda: did.append("end"))

    def barrier(name: str, timeout: float) -> None:
        if not comes:
            raise ClusterStartError("Not all came.")

    extended = SimpleNamespace(collectives=SimpleNamespace(close=lambda: closes))
    strategy = SimpleNamespace(num_workers=2, barrier=barrier, extended=extended)
    strategy.leave = lambda: MultiWorkerMirroredStrategy.leave(strategy)
    worker._leave([strategy])
    assert did == (["end"] if comes and closes else [])
