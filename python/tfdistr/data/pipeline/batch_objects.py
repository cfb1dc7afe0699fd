"""Objects that yield batches: a ``tf.data.Dataset``, a ``PyDataset``, a generator, or an R function.

As in Keras, they yield batches of the size that the user chose. The training thread reads those of Python
code: R runs on this thread only.
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr.errors import ArgumentError, DataShardError

if TYPE_CHECKING:
    import keras
    import tensorflow as tf


class GivenDataset:
    """The caller's ``tf.data.Dataset``, the argument ``name``, as a function for ``Source``."""

    def __init__(self, dataset: tf.data.Dataset, name: str) -> None:
        from tfdistr import tf_internals

        self._dataset, self._name = dataset, name
        self.gives_batches = tf_internals.makes_batches(dataset)
        #: Whether each pass has another order. Another process cannot see it in the graph.
        self.reshuffles = tf_internals.reshuffles(dataset)

    def __call__(self) -> tf.data.Dataset:
        """Return the dataset."""
        return self._dataset

    def __getstate__(self) -> dict[str, Any]:
        from tfdistr import tf_internals

        if tf_internals.has_unseeded_shuffle(self._dataset):
            raise DataShardError(
                "A dataset that is sent to workers must be in the same order on all of them.",
                received=f"`{self._name}`: a shuffle() without a seed",
                fix="Pass shuffle(..., seed=1), or a function that makes the dataset.",
            )
        python = tf_internals.python_ops(self._dataset)
        if python:
            raise ArgumentError(
                f"Cannot serialize `{self._name}` for the workers: its pipeline calls Python code.",
                received=f"a pipeline with {' and '.join(python)}",
                fix=f"Pass a function that makes the dataset: each worker calls {self._name}(ctx).",
            )
        return {**vars(self), "_dataset": tf_internals.serialized_dataset(self._dataset)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        from tfdistr import tf_internals

        vars(self).update(state)
        self._dataset = tf_internals.deserialized_dataset(*state["_dataset"])


class GivenBatches:
    """The caller's ``PyDataset`` or generator, the argument ``name``, as a function for ``Source``."""

    gives_batches = True

    def __init__(self, batches: keras.utils.PyDataset | Iterator[Any], name: str) -> None:
        self._batches, self._name = batches, name
        if is_py_dataset(batches):
            count_batches(batches, name)

    def __call__(self) -> Any:
        """Return the object."""
        return self._batches

    def __getstate__(self) -> dict[str, Any]:
        if is_py_dataset(self._batches):
            return vars(self)
        raise ArgumentError(
            f"Cannot serialize the generator `{self._name}` for the workers of `cluster`.",
            received=f"a {type(self._batches).__name__}",
            fix=f"Pass the function that makes the generator: {self._name}=batches, and not batches().",
        )


class Pull:
    """An R function that returns the next batch at each call.

    Args:
        first: The batch that the first call has returned.
        more: Returns the next batch; None at the end of a pass.
    """

    def __init__(self, first: Any, more: Callable[[], Any]) -> None:
        self._waiting = [first]
        self._more = more

    def __iter__(self) -> Iterator[Any]:
        while (batch := self._waiting.pop() if self._waiting else self._more()) is not None:
            yield batch


def is_py_dataset(value: Any) -> bool:
    """Return whether a value is a ``keras.utils.PyDataset``."""
    keras = sys.modules.get("keras")  # it has been imported where there is one
    return keras is not None and isinstance(value, keras.utils.PyDataset)


def count_batches(batches: keras.utils.PyDataset, name: str) -> int:
    """Return the number of batches of a ``PyDataset``."""
    try:
        count = batches.num_batches
    except NotImplementedError:
        count = None
    if count is None:
        raise ArgumentError(
            f"`{name}` must have a length: the number of batches, from the __len__() of the PyDataset.",
            received=f"{type(batches).__name__} without a length",
            fix="Add `def __len__(self)`, or pass a generator function and `steps_per_epoch`.",
        )
    if count < 1:
        raise ArgumentError(
            f"`{name}` must have at least one batch.",
            received=f"{count} batches",
            fix="Pass data to train on.",
        )
    return int(count)


def pass_of(batches: keras.utils.PyDataset, order: np.ndarray[Any, Any]) -> Iterator[Any]:
    """Yield the batches of one pass over a ``PyDataset``, whose workers prefetch some of them."""
    if batches.workers <= 1:
        for number in order:
            yield batches[int(number)]
        return
    left = collections.deque(map(int, order))
    waiting: collections.deque[Future[Any]] = collections.deque()
    with ThreadPoolExecutor(batches.workers) as pool:
        while left or waiting:
            while left and len(waiting) < batches.max_queue_size:
                waiting.append(pool.submit(batches.__getitem__, left.popleft()))
            yield waiting.popleft().result()
