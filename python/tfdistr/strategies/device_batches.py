"""The batches of a custom training loop on several devices of one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import tensorflow as tf


class DeviceBatches(tf.distribute.DistributedDataset):  # type: ignore[misc]
    """Batches that are split over devices, for a loop outside or inside of a ``tf.function``.

    TensorFlow fetches the next batch to each device during a step. A ``tf.function`` that makes an iterator
    and does not use it up waits for these fetches and never returns. Here, such an iterator leaves the
    batches on the host.

    Args:
        options: The ``tf.distribute.InputOptions``; None for the default.
    """

    def __init__(
        self,
        distribute: Callable[[tf.distribute.InputOptions], tf.distribute.DistributedDataset],
        options: tf.distribute.InputOptions | None,
    ) -> None:
        self._distribute, self._options = distribute, options
        self._fetched = distribute(options)

    def __iter__(self) -> Iterator[object]:
        if not tf.inside_function():
            return iter(self._fetched)
        options = self._options or tf.distribute.InputOptions()
        with tf.init_scope():
            batches = self._distribute(options._replace(experimental_fetch_to_device=False))
        return iter(batches)

    def reduce(self, initial_state: object, reduce_func: Callable[..., object]) -> object:
        """Run a ``for`` loop of a ``tf.function``, which always uses all batches."""
        return self._fetched.reduce(initial_state, reduce_func)

    @property
    def element_spec(self) -> tf.TypeSpec:
        """The shapes and types of a batch."""
        return self._fetched.element_spec

    @property
    def cardinality(self) -> tf.Tensor:
        """Number of batches."""
        return self._fetched.cardinality
