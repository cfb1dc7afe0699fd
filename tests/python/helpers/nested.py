"""Nested structures of tensors and arrays, compared."""

from typing import Any

import numpy as np
import tensorflow as tf


def assert_same(one: Any, other: Any) -> None:
    """Two nested structures have the same parts, types and values."""
    tf.nest.assert_same_structure(one, other)
    assert tf.nest.flatten(one)
    tf.nest.map_structure(_assert_same_part, one, other)


def _assert_same_part(one: Any, other: Any) -> None:
    if isinstance(other, tf.RaggedTensor):
        assert one.to_list() == other.to_list()
        return
    if isinstance(other, tf.SparseTensor):
        one, other = tf.sparse.to_dense(one), tf.sparse.to_dense(other)
    one, other = tf.convert_to_tensor(one), tf.convert_to_tensor(other)
    assert one.dtype == other.dtype
    np.testing.assert_array_equal(one, other)
