"""The order in which the values of virtual workers are added: a fixed tree.

The rounding of a sum depends on the order of its additions. Here the order depends on the number of virtual
workers alone: the tree halves the list of virtual workers until one is left. So the sum is bitwise
identical on any number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

Value = TypeVar("Value")
#: A node of the tree: the first virtual worker under it, and the one after the last.
Node = tuple[int, int]


class SumTree:
    """The tree of ``leaves`` virtual workers, on ``workers`` workers.

    A worker has consecutive virtual workers. It adds their values as far as the tree has a node for them, and
    sends these nodes. The minimum is one node per worker, if the number of workers is a power of two.

    Args:
        workers: Number of workers, at most ``leaves``.

    Example:
        >>> tree = SumTree(4, 3)
        >>> [tree.nodes(worker) for worker in range(3)]
        [[(0, 1)], [(1, 2)], [(2, 4)]]
        >>> tree.total(lambda node: str(node[0]), lambda a, b: f"({a}+{b})")
        '((0+1)+(2+3))'
    """

    def __init__(self, leaves: int, workers: int) -> None:
        self.leaves, self.workers = leaves, workers
        self._firsts = _firsts(0, leaves, workers)

    def leaves_of(self, worker: int) -> range:
        return range(self._firsts[worker], self._firsts[worker + 1])

    def nodes(self, worker: int) -> list[Node]:
        """Return the largest nodes of the tree whose leaves are all on this worker, from left to right."""
        return self.nodes_of(range(worker, worker + 1))

    def nodes_of(self, workers: range) -> list[Node]:
        """Return the largest nodes of the tree whose leaves are all on these consecutive workers."""
        return _cover((0, self.leaves), self._firsts[workers.start], self._firsts[workers.stop])

    @property
    def all_nodes(self) -> list[list[Node]]:
        return [self.nodes(worker) for worker in range(self.workers)]

    def total(
        self,
        value: Callable[[Node], Value],
        add: Callable[[Value, Value], Value],
        root: Node | None = None,
        known: Collection[Node] | None = None,
    ) -> Value:
        """Add the values under a node, by default all leaves, in the order of the tree."""
        first, end = root or (0, self.leaves)
        if (first, end) in known if known is not None else end - first == 1:
            return value((first, end))
        middle = (first + end) // 2
        left = self.total(value, add, (first, middle), known)
        return add(left, self.total(value, add, (middle, end), known))


def _firsts(first: int, end: int, workers: int) -> list[int]:
    """Return the first leaf of each worker, and the end: as even as possible, and halved as the tree is."""
    if workers == 1:
        return [first, end]
    left = workers // 2
    middle = first + (end - first) * left // workers
    return [*_firsts(first, middle, left)[:-1], *_firsts(middle, end, workers - left)]


def _cover(node: Node, first: int, end: int) -> list[Node]:
    if end <= node[0] or node[1] <= first:
        return []
    if first <= node[0] and node[1] <= end:
        return [node]
    middle = (node[0] + node[1]) // 2
    return [*_cover((node[0], middle), first, end), *_cover((middle, node[1]), first, end)]
