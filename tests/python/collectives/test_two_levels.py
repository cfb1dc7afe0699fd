"""Sums of ranks on several hosts: the ranks of a host share memory, and hosts exchange only their sums."""

import json
from typing import Any

import pytest
from clusters import run_cluster
from slow import mostly_slow

pytestmark = pytest.mark.timeout(240)


def found(output: str) -> list[dict[str, Any]]:
    return [json.loads(part.partition("\n")[0]) for part in output.split("found ")[1:]]


def sums(ranks: int) -> list[dict[str, Any]]:
    (ended,) = run_cluster("two_levels.py", ranks, [], timeout=200, mpi=True, start_warm=False)
    assert ended.status == 0, ended.output
    return found(ended.output)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has MPICH take this machine for several hosts."""

    def split(number: int, *, in_order: bool = True) -> None:
        monkeypatch.setenv("MPIR_CVAR_NUM_CLIQUES", str(number))
        monkeypatch.setenv("MPIR_CVAR_CLIQUES_BY_BLOCK", str(int(in_order)))

    return split


# Slow: starts three to six ranks.
@pytest.mark.parametrize(("number", "ranks"), mostly_slow([(2, 4), (3, 6)], quick=[(2, 4)]))
def test_sums_are_those_of_numpy_and_ordered_sums_of_one_worker(hosts, number, ranks):
    hosts(number)
    right = {"how": "TwoLevels", "plain": True, "halves": True, "ordered": True}
    assert sums(ranks) == [right] * ranks


@pytest.mark.slow(reason="starts three to six ranks")
@pytest.mark.parametrize(("number", "ranks", "in_order"), [(2, 4, False), (3, 3, True)])
def test_messages_sum_where_hosts_have_one_rank_or_ranks_out_of_order(hosts, number, ranks, in_order):
    hosts(number, in_order=in_order)
    right = {"how": "MessageSum", "plain": True, "halves": True, "ordered": True}
    assert sums(ranks) == [right] * ranks
