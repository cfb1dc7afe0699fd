"""Sparse gradients: rows of a table, each with its index, as ``tf.IndexedSlices``."""

from __future__ import annotations

import math
from dataclasses import dataclass

import tensorflow as tf

# Tables of at most this many bytes are sent whole, together with the dense gradients: two collectives for
# their rows would take longer.
_WHOLE = 1 << 18
# 32 bits of anything; TensorFlow's collectives and NCCL carry this type.
_WORD = tf.float32


def sum_equal_rows(slices: tf.IndexedSlices) -> tf.IndexedSlices:
    """Add the rows with the same index, in their order, so that each index occurs once.

    On a CPU, one thread adds all rows of an index: the result does not depend on the number of threads.
    """
    indices, places = tf.unique(slices.indices)
    values = tf.math.unsorted_segment_sum(slices.values, places, tf.size(indices))
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def whole_table(slices: tf.IndexedSlices, rows: int | tf.Tensor) -> tf.Tensor:
    """Return the dense gradient of a table with so many rows."""
    return tf.math.unsorted_segment_sum(slices.values, slices.indices, rows)


def table_shape(slices: tf.IndexedSlices) -> list[int] | None:
    """Return the shape of the table; None if it is not known when the step is traced."""
    known = None if slices.dense_shape is None else tf.get_static_value(slices.dense_shape)
    return None if known is None else [int(side) for side in known]


def is_small(slices: tf.IndexedSlices) -> bool:
    """Return whether to send the whole table. All workers get the same answer: it is that of the table."""
    shape = table_shape(slices)
    return shape is not None and tf.TensorShape(shape).num_elements() * slices.dtype.size <= _WHOLE


@dataclass(frozen=True)
class Layout:
    """The layout of a gradient's rows, each with its index, as rows of 32-bit words.

    Attributes:
        row: The shape of a row of the table.
        index_dtype: The type of the indices.
        wide_index: Whether an index may need 64 bits.
    """

    row: tuple[int, ...]
    dtype: tf.DType
    index_dtype: tf.DType
    wide_index: bool

    @classmethod
    def of(cls, slices: tf.IndexedSlices) -> Layout | None:
        """Return the layout of a gradient; None if its rows have no known size, or no such words."""
        shape = table_shape(slices)
        row = tf.TensorShape(shape[1:]) if shape else slices.values.shape[1:]
        if not row.is_fully_defined() or slices.dtype.size not in (2, 4, 8) or slices.dtype.is_complex:
            return None
        wide = slices.indices.dtype.size > 4 and (shape is None or shape[0] > tf.int32.max)
        return cls(tuple(row.as_list()), slices.dtype, slices.indices.dtype, wide)

    @property
    def _numbers(self) -> int:
        return math.prod(self.row)

    @property
    def _words_of_values(self) -> int:
        return -(-self._numbers * int(self.dtype.size) // int(_WORD.size))

    @property
    def words(self) -> int:
        """Number of words of a row with its index."""
        return self._words_of_values + 1 + self.wide_index

    def to_words(self, slices: tf.IndexedSlices) -> tf.Tensor:
        """Return a matrix with a row of words for each row of the gradient."""
        values = tf.reshape(slices.values, [-1, self._numbers])
        if self.dtype.size == 2:
            values = tf.pad(values, [[0, 0], [0, self._numbers % 2]])
            values = tf.reshape(values, [-1, self._words_of_values, 2])
        indices = tf.cast(slices.indices, tf.int64 if self.wide_index else tf.int32)
        parts = [tf.bitcast(values, _WORD), tf.bitcast(indices, _WORD)]
        widths = [self._words_of_values, 1 + self.wide_index]
        return tf.concat([tf.reshape(p, [-1, width]) for p, width in zip(parts, widths, strict=True)], 1)

    def from_words(self, words: tf.Tensor, dense_shape: tf.Tensor | None) -> tf.IndexedSlices:
        """Return the gradient whose rows are the rows of a matrix of words."""
        values, indices = tf.split(words, [self._words_of_values, 1 + self.wide_index], 1)
        if self.dtype.size == 8:
            values = tf.reshape(values, [-1, self._numbers, 2])
        values = tf.reshape(tf.bitcast(values, self.dtype), [tf.shape(words)[0], -1])[:, : self._numbers]
        index_type = tf.int64 if self.wide_index else tf.int32
        indices = tf.bitcast(indices if self.wide_index else indices[:, 0], index_type)
        return tf.IndexedSlices(
            tf.reshape(values, [-1, *self.row]), tf.cast(indices, self.index_dtype), dense_shape
        )
