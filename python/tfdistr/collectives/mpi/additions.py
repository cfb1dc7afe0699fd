"""Ways to add the workers' numbers: first those of one host, then the sums of the hosts.

A worker has one or more rows of numbers. An addition turns the rows of consecutive workers into the rows of
all of them, and in the end into one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tfdistr.collectives.sum_tree import SumTree

Array = np.ndarray[Any, Any]


class Addition(Protocol):
    """The order and the precision of a sum."""

    def rows(self, workers: range) -> int:
        """Return the number of rows that stand for these workers."""

    def total(self, parts: Sequence[Array], groups: Sequence[range], out: Array) -> None:
        """Add the parts.

        Args:
            parts: The rows of each group.
            groups: The workers of each part; all groups together have no gaps.
            out: Receives the rows of all groups. It may be one of the parts.
        """


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
