"""A layer on some rows of its inputs, to see whether it works row by row."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras_samples import Arrays, Masked

from tfdistr import tf_internals

# A lies between the rows of B, so that a sort or a cumulative sum shows.
A, B, AB, BA = [1], [2, 0], [1, 2, 0], [2, 0, 1]


class Ran(NamedTuple):
    """What a layer did with some rows.

    Attributes:
        outputs: The outputs and their masks, and for each row the variables that have changed.
        loss: The layer's loss, which counts for each row.
        draws: Whether it has drawn random numbers.
    """

    outputs: list[np.ndarray]
    loss: float
    draws: bool


class LayerOnRows:
    """A layer that runs on some rows of its inputs, each time with the same variables.

    Args:
        layer: The layer.
        arrays: Its inputs.
    """

    def __init__(self, layer: keras.Layer, arrays: Arrays) -> None:
        self.layer, self._arrays = layer, arrays
        # Inputs are a list, such as a query and a value, or a sequence and states.
        self._forms = [
            lambda first, *others, **training: layer([first, *others] if others else first, **training),
            layer,
            lambda first, *others, **training: layer(first, initial_state=list(others), **training),
        ]
        while True:
            try:
                self._call(AB, True)
                break
            except Exception:
                if len(arrays) == 1 or len(self._forms) == 1:
                    raise
                del self._forms[0]
        seeds = [generator.state for generator in tf_internals.seed_generators(layer)]
        self._variables = list({id(each): each for each in [*layer.variables, *seeds]}.values())
        self._before = [np.array(variable) for variable in self._variables]
        self._seeds = {id(seed) for seed in seeds}

    def adds_up(self, both_orders: bool = True) -> bool:
        """Return whether the layer works row by row.

        A row of a random layer depends on its draws, which are those of its place in the batch. So the layer
        works by row without draws, outside of training. In training, a row at a place depends on no other
        row, and equal rows get different draws.
        """
        try:
            ab = self._run(AB, True)
            if not ab.draws:
                return self._is_joined(ab, True, both_orders)
            return self._is_joined(self._run(AB, False), False, both_orders) and self._has_draws_by_row()
        except Exception:  # with some numbers of rows only
            return False

    def _is_joined(self, ab: Ran, training: bool, both_orders: bool) -> bool:
        a, b = self._run(A, training), self._run(B, training)
        if not np.isclose(ab.loss, a.loss + b.loss, rtol=1e-4):
            return False
        if not are_joined(ab.outputs, a.outputs, b.outputs):
            return False
        return not both_orders or are_joined(self._run(BA, training).outputs, b.outputs, a.outputs)

    def _has_draws_by_row(self) -> bool:
        for place, *orders in ((0, [1, 0, 2], [1, 2, 0]), (2, [0, 2, 1], [2, 0, 1])):
            first, second = (self._run(rows, True).outputs for rows in orders)
            own = slice(place, place + 1)
            if not all(_same(x[own], y[own]) for x, y in zip(first, second, strict=True)):
                return False
        alike, without = (self._run([1] * 8, training).outputs for training in (True, False))
        differ = any(not _same(output, np.repeat(output[:1], 8, 0)) for output in alike)
        return differ or all(map(_same, alike, without))  # the draws had no effect

    def _run(self, rows: list[int], training: bool) -> Ran:
        for variable, value in zip(self._variables, self._before, strict=True):
            variable.assign(value)
        outputs = [each for each in keras.tree.flatten(self._call(rows, training)) if each is not None]
        masks = [each._keras_mask for each in outputs if getattr(each, "_keras_mask", None) is not None]
        pairs = zip(self._variables, self._before, strict=True)
        changed = [variable for variable, value in pairs if not np.array_equal(variable, value)]
        # A change of a variable must be the same whatever the rows.
        state = [np.repeat(np.array(v)[None], len(rows), 0) for v in changed if id(v) not in self._seeds]
        return Ran(
            outputs=[*map(as_array, [*outputs, *masks]), *state],
            loss=len(rows) * float(sum(self.layer.losses)),
            draws=any(id(v) in self._seeds for v in changed),
        )

    def _call(self, rows: list[int], training: bool) -> Any:
        inputs = [tf.constant(array[rows]) for array in self._arrays]
        if isinstance(self._arrays, Masked):
            inputs[0]._keras_mask = tf.constant(self._arrays.mask[rows])
        return self._forms[0](*inputs, training=training)


def as_array(value: Any) -> np.ndarray:
    """Return an output as a dense array."""
    if isinstance(value, tf.RaggedTensor):
        value = value.to_tensor()
    return np.asarray(tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value)


def are_joined(both: list[np.ndarray], first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    """Return whether the outputs for some rows are those for the first and then those for the second rows."""
    for whole, *parts in zip(both, first, second, strict=True):
        if not all(part.ndim and part.shape[1:] == whole.shape[1:] for part in [whole, *parts]):
            return False
        if not _same(whole, np.concatenate(parts)):
            return False
    return True


def _same(found: np.ndarray, expected: np.ndarray) -> bool:
    if found.shape != expected.shape:
        return False
    if found.dtype.kind not in "fc":
        return bool(np.array_equal(found, expected))
    # Rows of different sizes: each is compared by its own.
    axes = tuple(range(1, found.ndim))
    size = np.max(np.abs(np.nan_to_num(expected)), axis=axes, keepdims=True) if found.size else 0.0
    close = np.abs(found - expected) <= 1e-4 * size + 1e-7
    return bool(np.all(close | (found == expected) | (np.isnan(found) & np.isnan(expected))))
