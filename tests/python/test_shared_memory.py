"""Sums in the memory that the ranks of one machine have in common."""

from __future__ import annotations

import json
from typing import Any

import pytest
from clusters import run_cluster

pytestmark = pytest.mark.timeout(120)


def found(what: str, ranks: int) -> list[dict[str, Any]]:
    (ended,) = run_cluster("shared_sum.py", ranks, [what], timeout=90, mpi=True)
    assert ended.status == 0, ended.output
    texts = [part.partition("\n")[0] for part in ended.output.split("found ")[1:]]
    assert len(texts) == ranks
    return [json.loads(text) for text in texts]


@pytest.mark.parametrize("ranks", [2, 3])
def test_arrays_of_any_length_are_summed_alike_on_all_ranks(ranks):
    assert len({one["content"] for one in found("sums", ranks)}) == 1


def test_lengths_that_differ_are_told():
    assert found("sizes", 2) == [
        {"error": "The workers' tensors must have the same number of bytes, and have 12 on worker 0, 16 on "
         "worker 1."}
    ] * 2  # fmt: skip


@pytest.mark.parametrize(("ranks", "same"), [(1, False), (2, True), (5, False)])
def test_one_rank_needs_none_and_many_leave_it_to_mpi(ranks, same):
    assert [one["same"] for one in found("same", ranks)] == [same] * ranks
