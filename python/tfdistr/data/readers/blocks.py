"""Examples in blocks that are decoded as a whole: row groups, record batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Leaf:
    """An array of the examples.

    Attributes:
        kind: Its type in a batch; the type of objects for text, whose values are bytes.
    """

    kind: np.dtype[Any]
    shape: tuple[int, ...] = ()

    @property
    def is_text(self) -> bool:
        """Return whether the values are text, of no fixed size."""
        return self.kind.hasobject


class Blocks(ABC):
    """Examples in files. Blocks are consecutive, and their examples are numbered from 0 on.

    Attributes:
        structure: The structure of an example: ``(x,)`` or ``(x, y)``, with a ``Leaf`` for each array.
        ends: For each block, the number of the example after its last one.
        only_once: Whether decoding a block takes so long that its examples must be kept.
    """

    structure: tuple[Any, ...]
    ends: Array
    only_once = False

    @property
    def identity(self) -> str:
        """Return what identifies this data, beside the names and sizes of the files."""
        return ""

    def check(self) -> None:
        """Check early for later errors, as far as it takes little time."""
        return

    @property
    def encoded(self) -> Blocks:
        """The same examples, with images as they are in the files."""
        return self

    def decoded(self, arrays: list[Array], indices: Array) -> list[Array]:
        """Decode the examples of ``encoded`` with these indices."""
        return arrays

    def decoded_in_graph(self, parts: list[Any]) -> list[Any]:
        """Decode examples of ``encoded`` in a graph: tensors to tensors of the same values."""
        return parts

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def first(self, block: int) -> int:
        """Return the number of the first example of a block."""
        return int(self.ends[block - 1]) if block else 0

    @abstractmethod
    def pieces(self, block: int) -> Iterator[list[Array]]:
        """Decode a block, piece by piece: the arrays of consecutive examples, in the order of the leaves."""

    def read(self, block: int) -> list[Array]:
        """Decode a block."""
        pieces = list(self.pieces(block))
        if len(pieces) == 1:
            return pieces[0]
        if not pieces:
            return [np.empty((0, *leaf.shape), leaf.kind) for leaf in leaves_of(self.structure)]
        return [np.concatenate(parts) for parts in zip(*pieces, strict=True)]


class Single(Blocks):
    """Examples that are decoded one by one, or some of them together.

    Args:
        together: Number of examples of a block.
    """

    def __init__(self, structure: tuple[Any, ...], examples: int, together: int = 1) -> None:
        self.structure = structure
        self.ends = np.minimum(np.arange(together, examples + together, together), examples)

    @abstractmethod
    def take(self, indices: Array) -> list[Array]:
        """Decode the examples with these indices: an array for each leaf."""

    def pieces(self, block: int) -> Iterator[list[Array]]:
        """Decode a block."""
        yield self.take(np.arange(self.first(block), self.ends[block]))


def leaves_of(structure: Any) -> list[Leaf]:
    """Return the leaves of a structure in TensorFlow's order: dictionaries by key."""
    if isinstance(structure, Mapping):
        return [leaf for key in sorted(structure) for leaf in leaves_of(structure[key])]
    if isinstance(structure, tuple):
        return [leaf for part in structure for leaf in leaves_of(part)]
    return [structure]
