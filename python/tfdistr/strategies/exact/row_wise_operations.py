"""The operations of functional models that do not work row by row, such as ``ops.mean(x, axis=0)``.

Each runs on rows A, on rows B and on both, with random inputs of the shapes in the model, once per process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.strategies.exact.row_wise_arguments import described_argument

# Rows of an ascending order, mixed so that a sort shows. A shift by a few rows is none for no number of rows.
_A, _B = (4, 1, 6), (7, 0, 3, 5, 2)
_ROWS = len(_A) + len(_B)
# Positions of a sequence whose length is not known.
_LENGTH = 4
# Inputs with more entries take long. They get axes of at most this size.
_MOST_ENTRIES = 1 << 20
_SMALL = 16
_SHOWN = ("axis", "axes", "subscripts", "newshape", "shape")

_tried: dict[object, bool] = {}


def unproved_operations(model: keras.Model) -> Iterator[str]:
    """Yield the operations in the graph of a functional model that do not work row by row.

    What only follows from such an operation is left out.
    """
    spoiled: set[int] = set()
    # Other tensors do not tell: Keras takes the product of a dense tensor and a number for sparse.
    dense = not any(_is_sparse(tensor) for tensor in getattr(model, "inputs", None) or ())
    for call in tf_internals.graph_calls(model):
        tensors = _tensors(call)
        if not any(id(tensor) in spoiled for tensor in tensors):
            if dense and _works_by_row(call, tensors):
                continue
            yield _name(call.operation)
        spoiled |= {id(output) for output in call.outputs}


def _is_sparse(tensor: Any) -> bool:
    return bool(tensor.sparse or getattr(tensor, "ragged", False))


def _tensors(call: tf_internals.GraphCall) -> list[tf.Tensor]:
    flat = keras.tree.flatten((call.args, call.kwargs))
    return [part for part in flat if isinstance(part, keras.KerasTensor)]


def _name(operation: keras.Operation) -> str:
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(operation).__name__).lower()
    shown = [
        f"{key}={described_argument(vars(operation)[key])}"
        for key in _SHOWN
        if vars(operation).get(key) is not None
    ]
    return f"the operation {name!r}" + (f" with {', '.join(shown)}" if shown else "")


def _works_by_row(call: tf_internals.GraphCall, tensors: Sequence[object]) -> bool:
    operation = call.operation
    arguments = {key: value for key, value in vars(operation).items() if key[0] != "_" and key != "name"}
    flat = keras.tree.flatten((list(arguments.values()), call.args, call.kwargs))
    # A function in it, as of ops.cond(), may mix rows for other values only.
    if type(operation).__module__.partition(".")[0] != "keras" or any(map(callable, flat)):
        return False
    if type(operation).__name__ == "GetItem" and not _gets_all_rows(*call.args):
        return False
    key = _key(call, arguments)
    if key is None:
        return _agrees(call, tensors)
    if key not in _tried:
        _tried[key] = _agrees(call, tensors)
    return _tried[key]


def _gets_all_rows(x: Any, key: Any) -> bool:
    """Return whether a slice has all rows, however many there are."""
    first, *others = key if isinstance(key, tuple) else (key,)
    return first == slice(None) or (first is Ellipsis and len(others) < len(x.shape))


def _key(call: tf_internals.GraphCall, arguments: dict[str, object]) -> object:
    """Return what decides the result of a call; None for an array, which has no short description."""

    def described_part(part: object) -> object:
        if isinstance(part, keras.KerasTensor):
            return ("tensor", part.shape, part.dtype)
        if part is None or isinstance(part, bool | int | float | str | slice | type(...)):
            return repr(part)
        raise TypeError

    try:
        parts = keras.tree.map_structure(described_part, (arguments, call.args, call.kwargs))
    except TypeError:
        return None
    return type(call.operation), repr(parts)


def _agrees(call: tf_internals.GraphCall, tensors: Sequence[object]) -> bool:
    """Return whether the operation gives for rows A and B its results for A, followed by those for B."""
    try:
        values = {id(tensor): _values(tensor) for tensor in tensors}

        def run(rows: Sequence[int]) -> list[Any]:
            def fill(part: object) -> Any:
                return tf.constant(values[id(part)][list(rows)]) if id(part) in values else part

            args, kwargs = keras.tree.map_structure(fill, (call.args, call.kwargs))
            return [np.asarray(output) for output in keras.tree.flatten(call.operation(*args, **kwargs))]

        with tf.init_scope(), tf.device("CPU:0"):
            a, b, ab, ba = map(run, (_A, _B, _A + _B, _B + _A))
        pairs = [*zip(ab, a, b, strict=True), *zip(ba, b, a, strict=True)]
        return all(_same(both, np.concatenate([first, second])) for both, first, second in pairs) and all(
            len(output) % len(_A) == 0 < len(output) for output in a
        )
    except Exception:  # what fails on these rows is not proved
        return False


def _values(tensor: Any) -> np.ndarray:
    """Return rows for a tensor of the graph, in ascending order."""
    if not tensor.shape:
        raise ValueError
    shape = [_ROWS, *(_LENGTH if size is None else size for size in tensor.shape[1:])]
    if np.prod(shape) > _MOST_ENTRIES:
        shape = [min(size, _SMALL) for size in shape]
    random = np.random.default_rng(0)
    if tensor.dtype == "string":
        return random.integers(3, size=shape).astype(str)
    if tensor.dtype == "bool":
        return random.integers(2, size=shape).astype(bool)
    if "int" in tensor.dtype:
        return np.sort(random.integers(2, size=shape), axis=0).astype(tensor.dtype)
    return np.sort(random.uniform(0.1, 0.9, shape), axis=0).astype(tf.as_dtype(tensor.dtype).as_numpy_dtype)


def _same(value: Any, other: Any) -> bool:
    if value.shape != other.shape:
        return False
    if value.dtype.kind not in "fc" and value.dtype.name != "bfloat16":
        return bool(np.array_equal(value, other))
    tolerance = 1e-2 if value.dtype.itemsize == 2 else 1e-4
    return bool(
        np.allclose(value.astype(complex), other.astype(complex), tolerance, tolerance, equal_nan=True)
    )
