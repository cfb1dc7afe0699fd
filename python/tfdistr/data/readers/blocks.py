"""Examples in blocks that are read as a whole: row groups, record batches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfdistr.data.trees import Array, leaves

#: Number of images that are checked before a job starts.
_LOOKED_AT = 32


@dataclass(frozen=True)
class Leaf:
    """An array of the examples. The values of text are bytes, and its type is that of objects."""

    kind: np.dtype
    shape: tuple[int, ...] = ()

    @property
    def is_text(self) -> bool:
        """Return whether the values are text, of no fixed size."""
        return self.kind.hasobject

    @property
    def nbytes(self) -> int:
        """Bytes of the array of an example."""
        return math.prod(self.shape) * self.kind.itemsize


class Blocks(ABC):
    """Examples in files. Blocks are consecutive, and their examples are numbered from 0 on.

    Attributes:
        structure: The structure of an example: ``(x,)`` or ``(x, y)``, with a ``Leaf`` for each array.
        ends: For each block, the number of the example after its last one.
        only_once: Whether reading a block takes so long that its examples must be kept.
        identity: What identifies this data, beside the names and sizes of the files.
    """

    structure: tuple[Any, ...]
    ends: Array
    only_once = False
    identity = ""

    @property
    def leaves(self) -> list[Leaf]:
        """The arrays of an example."""
        return [leaf for _, leaf in leaves(self.structure)]

    @property
    def stored(self) -> list[Leaf]:
        """The arrays of an example before ``decoded``: images are bytes, as they are in the files."""
        return self.leaves

    @property
    def columns_of_inputs(self) -> tuple[str, ...] | None:
        """The names of the columns of ``x``; None for other files than tables."""
        return None

    def classes(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the classes, from all examples, of targets that have some, by path in ``y``."""
        return {}

    def check(self) -> None:
        """Check early for later errors, as far as it takes little time."""
        return

    def decoded(self, arrays: list[Array], indices: Array) -> list[Array]:
        """Decode the stored examples with these indices."""
        return arrays

    def decoded_in_graph(self, parts: list[object]) -> list[object]:
        """Decode stored examples in a graph: tensors to tensors of the same values."""
        return parts

    def place(self, index: int) -> tuple[str, int | None]:
        """Return the file of an example, and its number there; None if the file is this example."""
        raise NotImplementedError

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def first(self, block: int) -> int:
        """Return the number of the first example of a block."""
        return int(self.ends[block - 1]) if block else 0

    @abstractmethod
    def pieces(self, block: int) -> Iterator[list[Array]]:
        """Read a block, piece by piece: the stored arrays of consecutive examples."""

    def examples(self, block: int) -> Iterator[tuple[Array, list[Array]]]:
        """Read and decode a block, piece by piece: indices and arrays."""
        start = self.first(block)
        for arrays in self.pieces(block):
            indices = np.arange(start, start + len(arrays[0]))
            yield indices, self.decoded(arrays, indices)
            start += len(indices)


class Single(Blocks):
    """Examples that are read one by one, or ``together`` in blocks."""

    def __init__(self, structure: tuple[object, ...], examples: int, together: int = 1) -> None:
        self.structure = structure
        self.ends = np.minimum(np.arange(together, examples + together, together), examples)

    @abstractmethod
    def take(self, indices: Array) -> list[Array]:
        """Read the stored examples with these indices: an array for each leaf."""

    def pieces(self, block: int) -> Iterator[list[Array]]:
        """Read a block."""
        yield self.take(np.arange(self.first(block), self.ends[block]))


def some_of(examples: int) -> list[int]:
    """Return the indices of examples that are checked early, from the first to the last."""
    return [int(index) for index in np.linspace(0, examples - 1, min(_LOOKED_AT, examples), dtype=int)]


def joined(pieces: Sequence[list[Array]], leaves: Sequence[Leaf]) -> list[Array]:
    """Concatenate the arrays of pieces; without pieces, return empty arrays."""
    if len(pieces) == 1:
        return pieces[0]
    empty = [[np.empty((0, *leaf.shape), leaf.kind) for leaf in leaves]]
    return [np.concatenate(parts) for parts in zip(*(pieces or empty), strict=True)]
