"""The shapes of a batch for Keras, so that it does not read a batch before it trains.

Keras reads a batch for its shapes, and then restarts the dataset. A shuffle that differs from pass to pass
would be ahead by an unknown number of prefetched passes. Each worker would also read and decode an unused
batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfdistr import tf_internals

# Rows of the batch of zeros: not 1, because a dimension of size 1 could be dropped.
_ROWS = 2


def has_known_shapes(element_spec: Any) -> bool:
    """Return whether only the number of rows of a batch is unknown, and no other dimension."""
    return all(
        isinstance(part, tf.TensorSpec) and part.shape.rank and None not in part.shape[1:].as_list()
        for part in tf.nest.flatten(element_spec)
    )


def batch_of_zeros(element_spec: Any) -> Any:
    """Make a batch of zeros. The shapes of the batch must be known."""
    return tf.nest.map_structure(
        lambda spec: tf.zeros([spec.shape[0] or _ROWS, *spec.shape[1:]], spec.dtype), element_spec
    )


class WithoutFirstLook:
    """A dataset of batches that gives Keras a batch of zeros when Keras only needs shapes.

    Args:
        dataset: Batches whose shapes are known.
        distributed: The same batches for the replicas of a strategy; by default the dataset itself.
    """

    def __init__(self, dataset: tf.data.Dataset, distributed: Any = None) -> None:
        self._dataset = dataset
        self._distributed = dataset if distributed is None else distributed

    @property
    def element_spec(self) -> Any:
        """The shapes and types of a batch."""
        return self._dataset.element_spec

    def __iter__(self) -> Iterator[Any]:
        if not tf_internals.keras_builds_model():
            return iter(self._distributed)
        return iter(tf.data.Dataset.from_tensors(batch_of_zeros(self.element_spec)))
