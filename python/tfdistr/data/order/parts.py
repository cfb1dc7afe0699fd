"""The parts of a batch, which are split by rows together: each must have a row for each example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import DataShardError

_RULE = "Cannot split a batch over workers: not all of its parts have a row for each example."
_FIX = (
    "Repeat what all rows share for each row, or make it a weight of the model. If each batch is one graph, "
    "train with one worker, or make batches of graphs that are padded to the same number of nodes."
)
#: The number of batches that show whether each is one graph.
_LOOKED_AT = 2


def check_parts(dataset: tf.data.Dataset, again: Callable[[], tf.data.Dataset] | None = None) -> None:
    """Refuse batches that cannot be split by rows, as far as their types or the first batches show.

    Args:
        again: Makes the dataset once more, which is read if Python code makes its elements.

    Raises:
        DataShardError: A part has another number of rows, or each batch is one graph.
    """
    specs = _named(dataset.element_spec)
    shapes = {name: spec.shape for name, spec in specs if hasattr(spec, "shape")}
    sizes = {name: shape[0] for name, shape in shapes.items() if shape.rank}
    known = set(sizes.values()) - {None}
    if len(known) > 1:
        raise _different(sizes)
    may_be_graphs = any(shape.rank == 2 and shape.as_list() == [None, None] for shape in shapes.values())
    if may_be_graphs or (known and None in sizes.values()):
        found = tf_internals.first_elements(dataset, _LOOKED_AT)
        if not found and again is not None:
            with tf_internals.undisturbed_random_numbers():
                found = list(again().take(_LOOKED_AT))
        check_rows(found)


def check_rows(batches: Sequence[Any]) -> None:
    """Refuse batches of arrays or tensors that cannot be split by rows.

    Each batch is one graph if a part has as many columns as rows, in batches of different sizes.

    Raises:
        DataShardError: A part has another number of rows, or each batch is one graph.
    """
    shapes: dict[str, list[tuple[Any, ...]]] = {}
    for batch in batches:
        sizes = {name: _rows(part) for name, part in _named(batch)}
        if len(set(sizes.values())) > 1:
            raise _different(sizes)
        for name, part in _named(batch):
            shapes.setdefault(name, []).append(tuple(part.shape))
    for name, found in shapes.items():
        square = all(len(shape) == 2 and shape[0] == shape[1] for shape in found)
        if square and len(set(found)) > 1:
            received = f"`{name}` of the shapes {' and '.join(map(str, found))}"
            raise DataShardError(_RULE, received=received, fix=_FIX)


def assert_rows(batch: Any) -> None:
    """Refuse a batch of tensors, within a graph, whose parts have different numbers of rows."""
    parts = list(_named(batch))
    first_name, first = parts[0]
    for name, part in parts[1:]:
        tf.debugging.assert_equal(
            _count(part), _count(first), f"{_RULE} Received: `{name}` beside `{first_name}`. Fix: {_FIX}"
        )


def _different(sizes: Mapping[str, int | None]) -> DataShardError:
    described = ", ".join(f"`{name}`: {size} rows" for name, size in sizes.items() if size is not None)
    return DataShardError(_RULE, received=described, fix=_FIX)


def _named(batch: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts of ``x``, ``(x, y)`` or ``(x, y, sample_weight)`` with their names."""
    if isinstance(batch, tuple):
        for name, part in zip(("x", "y", "sample_weight"), batch, strict=False):
            yield from _leaves(part, name)
    else:
        yield from _leaves(batch, "x")


def _leaves(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, Mapping):
        for key in tree:
            yield from _leaves(tree[key], f"{name}[{key!r}]")
    elif isinstance(tree, tuple | list):
        for number, part in enumerate(tree):
            yield from _leaves(part, f"{name}[{number}]")
    elif tree is not None:
        yield name, tree


def _rows(part: Any) -> int:
    if isinstance(part, tf.RaggedTensor | tf.SparseTensor):
        return int(_count(part))
    return int(part.shape[0])


def _count(part: Any) -> tf.Tensor:
    if isinstance(part, tf.RaggedTensor):
        return tf.cast(part.nrows(), tf.int64)
    return part.dense_shape[0] if isinstance(part, tf.SparseTensor) else tf.shape(part, tf.int64)[0]
