"""Sums in the memory that the ranks of one machine have in common."""

import json
from typing import Any

import pytest
from clusters import run_cluster

pytestmark = pytest.mark.timeout(120)


def found(what: str, ranks: int) -> list[dict[str, Any]]:
    (ended,) = run_cluster("shared_sum.py", ranks, [what], timeout=90, mpi=True, start_warm=False)
    assert ended.status == 0, ended.output
    texts = [part.partition("\n")[0] for part in ended.output.split("found ")[1:]]
    assert len(texts) == ranks
    return [json.loads(text) for text in texts]


@pytest.mark.parametrize("network", ["ucx", "ofi"])
def test_mpi_ends_on_any_network_when_the_memory_is_freed(network, monkeypatch):
    monkeypatch.setenv("MPIR_CVAR_CH4_NETMOD", network)
    assert found("same", 2) == [{"same": True, "named": False}] * 2


def test_ranks_that_do_not_see_each_other_leave_it_to_mpi():
    assert found("hidden", 2) == [{"same": False, "named": False}] * 2


def test_arrays_of_any_length_are_summed_alike_on_all_ranks():
    assert len({one["content"] for one in found("sums", 2)}) == 1


def test_lengths_that_differ_are_told():
    for one in found("sizes", 2):
        assert one["error"].splitlines() == [
            "The workers sum tensors of different shapes or types.",
            "Received: numbers of bytes: 12 on worker 0, 16 on worker 1",
            "Fix: Have each worker reduce the same tensors in the same order.",
        ]


@pytest.mark.parametrize("ranks", [1, 5])
def test_one_rank_needs_none_and_many_leave_it_to_mpi(ranks):
    assert [one["same"] for one in found("same", ranks)] == [False] * ranks
