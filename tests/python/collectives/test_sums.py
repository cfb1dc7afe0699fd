"""Sums of ranks: in the memory of a host, over hosts that exchange only their sums, or by messages."""

import json
from typing import Any

import pytest
from clusters import run_cluster
from slow import mostly_slow

pytestmark = pytest.mark.timeout(240)
RIGHT = {"plain": True, "halves": True, "ordered": True, "named": False}


def found(ranks: int, *what: str) -> list[dict[str, Any]]:
    (ended,) = run_cluster("sums.py", ranks, list(what), timeout=200, mpi=True, start_warm=False)
    assert ended.status == 0, ended.output
    texts = [part.partition("\n")[0] for part in ended.output.split("found ")[1:]]
    assert len(texts) == ranks
    return [json.loads(text) for text in texts]


# Slow: starts three to six ranks. MPICH takes this machine for several hosts.
@pytest.mark.parametrize(
    ("hosts", "ranks", "in_order", "how"),
    mostly_slow(
        [(1, 2, True, "SharedSum"), (1, 3, True, "SharedSum"), (2, 4, True, "TwoLevels"),
         (3, 6, True, "TwoLevels"), (1, 1, True, "MessageSum"), (1, 5, True, "MessageSum"),
         (2, 4, False, "MessageSum"), (3, 3, True, "MessageSum")],
        quick=[(1, 2, True, "SharedSum"), (2, 4, True, "TwoLevels")],
    ),
)  # fmt: skip
def test_sums_are_those_of_numpy_and_ordered_sums_of_one_worker(monkeypatch, hosts, ranks, in_order, how):
    if hosts > 1:
        monkeypatch.setenv("MPIR_CVAR_NUM_CLIQUES", str(hosts))
        monkeypatch.setenv("MPIR_CVAR_CLIQUES_BY_BLOCK", str(int(in_order)))
    assert found(ranks) == [{"how": how, **RIGHT}] * ranks


@pytest.mark.parametrize("network", ["ucx", "ofi"])
def test_mpi_ends_on_any_network_when_the_memory_is_freed(network, monkeypatch):
    """Also where ranks do not see each other's memory: they leave the sums to MPI."""
    monkeypatch.setenv("MPIR_CVAR_CH4_NETMOD", network)
    assert found(2, "hidden" if network == "ucx" else "freed") == [
        {"how": "MessageSum" if network == "ucx" else "SharedSum"}
    ] * 2  # fmt: skip


def test_lengths_that_differ_are_told():
    for one in found(2, "sizes"):
        assert "Received: numbers of bytes: 12 on worker 0, 16 on worker 1" in one["error"].splitlines()
