"""Keras reads a batch to see its shapes before it trains, and begins the dataset again: here it need not.

That first reading would move on a shuffle that differs from pass to pass, by as many passes as the pipeline
has read ahead, which nobody knows; and each worker would read and decode a batch for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfdistr import _private

# Rows of the batch that only has shapes: more than one, which might be taken for a dimension to be dropped.
_ROWS = 2


def has_known_shapes(dataset: tf.data.Dataset) -> bool:
    """Whether all that is unknown of the shapes of a batch is its number of rows."""
    return all(
        isinstance(part, tf.TensorSpec) and part.shape.rank and None not in part.shape[1:].as_list()
        for part in tf.nest.flatten(dataset.element_spec)
    )


def batch_of_zeros(element_spec: Any) -> Any:
    """A batch whose shapes are known, with zeros in it."""
    return tf.nest.map_structure(
        lambda spec: tf.zeros([spec.shape[0] or _ROWS, *spec.shape[1:]], spec.dtype), element_spec
    )


class WithoutFirstLook:
    """A dataset of batches that shows Keras a batch of zeros where it only looks at shapes.

    Args:
        dataset: Batches whose shapes are known.
        distributed: The same for the replicas of a strategy; by default the dataset itself.
    """

    def __init__(self, dataset: tf.data.Dataset, distributed: Any = None) -> None:
        self._dataset = dataset
        self._distributed = dataset if distributed is None else distributed

    @property
    def element_spec(self) -> Any:
        """The shapes and types of a batch."""
        return self._dataset.element_spec

    def __iter__(self) -> Iterator[Any]:
        if not _private.keras_builds_model():
            return iter(self._distributed)
        return iter(tf.data.Dataset.from_tensors(batch_of_zeros(self.element_spec)))
