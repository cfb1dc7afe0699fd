"""The tree of additions: the same on any number of workers, and with as few nodes to send as that allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdistr.collectives.sum_tree import SumTree


def written(tree: SumTree, first: tuple[int, int] | None = None) -> str:
    return tree.total(lambda node: str(node[0]), lambda a, b: f"({a}+{b})", first)


@st.composite
def sizes(draw: st.DrawFn) -> tuple[int, int]:
    leaves = draw(st.integers(1, 100))
    return leaves, draw(st.integers(1, leaves))


@given(sizes())
def test_the_sum_of_the_workers_sums_is_the_sum_of_one_worker(drawn):
    leaves, workers = drawn
    tree = SumTree(leaves, workers)
    own = {node: written(tree, node) for nodes in tree.all_nodes for node in nodes}
    added = tree.total(own.__getitem__, lambda a, b: f"({a}+{b})", known=set(own))
    assert added == written(SumTree(leaves, 1))


@given(sizes())
def test_each_worker_has_leaves_that_follow_each_other_and_differ_in_number_by_one(drawn):
    leaves, workers = drawn
    tree = SumTree(leaves, workers)
    each = [tree.leaves_of(worker) for worker in range(workers)]
    assert [leaf for own in each for leaf in own] == list(range(leaves))
    assert max(map(len, each)) - min(map(len, each)) <= 1


@given(st.integers(0, 5), st.integers(1, 100))
def test_a_power_of_two_of_workers_sends_one_node_each(exponent, more):
    tree = SumTree(2**exponent + more, 2**exponent)
    assert [len(nodes) for nodes in tree.all_nodes] == [1] * 2**exponent


@pytest.mark.parametrize(
    ("leaves", "workers", "numbers"),
    [(4, 3, [1, 1, 1]), (8, 3, [1, 2, 2]), (8, 5, [1, 2, 1, 1, 1]), (8, 6, [1] * 6), (16, 3, [2, 3, 2])],
)
def test_other_numbers_of_workers_send_more_nodes(leaves, workers, numbers):
    assert [len(nodes) for nodes in SumTree(leaves, workers).all_nodes] == numbers
