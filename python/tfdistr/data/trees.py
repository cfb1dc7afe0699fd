"""Nested structures of arrays: tuples and dictionaries, whose order is TensorFlow's (dictionaries by key)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

Array = np.ndarray
Tree = Any  # an array, or tuples and dictionaries of arrays; None has no array


def batch_type(kind: np.dtype) -> np.dtype:
    """Return the type in a batch of values of this type: Keras's type for numbers with a fraction."""
    if kind.kind in "USO":
        return np.dtype(object)
    if not np.issubdtype(kind, np.floating):
        return kind
    import keras

    floatx: np.dtype = np.dtype(keras.config.floatx())
    return floatx


def leaves(tree: Tree, path: str = "") -> list[tuple[str, Any]]:
    """Return all arrays of a structure with their paths."""
    if tree is None:
        return []
    if isinstance(tree, Mapping):
        return [leaf for key in sorted(tree) for leaf in leaves(tree[key], f"{path}[{key!r}]")]
    if isinstance(tree, tuple):
        return [leaf for number, part in enumerate(tree) for leaf in leaves(part, f"{path}[{number}]")]
    return [(path, tree)]


def replaced(tree: Tree, by: Callable[[Any], object]) -> Tree:
    """Replace each array of a structure."""
    if tree is None:
        return None
    if isinstance(tree, Mapping):
        parts = {key: replaced(tree[key], by) for key in sorted(tree)}
        return {key: parts[key] for key in tree}
    return tuple(replaced(part, by) for part in tree) if isinstance(tree, tuple) else by(tree)


def filled(structure: Tree, values: Iterator[object]) -> Tree:
    """Replace the arrays of a structure by values."""
    return replaced(structure, lambda _: next(values))
