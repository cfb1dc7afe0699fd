"""Objects that yield batches: a ``tf.data.Dataset``, a ``PyDataset``, a generator, or an R function.

As in Keras, they yield batches of the size that the user chose. The training thread reads those of Python
code: R runs on this thread only.
"""

from __future__ import annotations

import collections
import logging
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from tfdistr.data.trees import Array
from tfdistr.errors import ArgumentError
from tfdistr.utils.warn import NOTE

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

    from tfdistr.data.order.context import WorkerContext

log = logging.getLogger("tfdistr")


class GivenDataset:
    """The caller's ``tf.data.Dataset``, the argument ``name``, as a function for ``Source``."""

    def __init__(self, dataset: tf.data.Dataset, name: str) -> None:
        from tfdistr import tf_internals

        self._dataset, self._name, self._noted = dataset, name, False
        self.gives_batches = tf_internals.makes_batches(dataset)
        #: Whether each pass has another order. Another process cannot see it in the graph.
        self.reshuffles = tf_internals.reshuffles(dataset)
        self._unseeded = tf_internals.unseeded_parts(dataset)
        self._caches = tf_internals.cache_files(dataset)

    def __call__(self, context: WorkerContext) -> tf.data.Dataset:
        """Return the dataset. What is random in it has seeds, and each worker has its own cache files."""
        from tfdistr import tf_internals

        if self._unseeded and not self._noted and context.is_chief:
            self._noted = True
            log.warning(
                "`%s`: %s without a seed gets the seed of the job.", self._name, " and ".join(self._unseeded),
                extra=NOTE,
            )  # fmt: skip
        suffix = f".worker-{context.index}" if self._caches and context.index else ""
        if not (self._unseeded or suffix):
            return self._dataset
        return tf_internals.rewritten(self._dataset, context.seed, suffix)

    def __getstate__(self) -> dict[str, object]:
        from tfdistr import tf_internals

        python = tf_internals.python_ops(self._dataset)
        if python:
            raise ArgumentError(
                f"Cannot serialize `{self._name}` for the workers: its pipeline calls Python code.",
                received=f"a pipeline with {' and '.join(python)}",
                fix=f"Pass a function that makes the dataset: each worker calls {self._name}(ctx).",
            )
        from tfdistr.data.order.shard import check_no_hint

        check_no_hint(self._dataset)
        try:
            return {**vars(self), "_dataset": tf_internals.serialized_dataset(self._dataset)}
        except tf_internals.StatefulPipeline as found:
            raise ArgumentError(
                f"Cannot serialize `{self._name}` for the workers: its pipeline has a state.",
                received=_describe_state(found.op),
                fix=f"Pass a function that makes the dataset and its layers: each worker calls {self._name}"
                "(ctx). Or move Keras layers from map() into the model.",
            ) from None

    def __setstate__(self, state: dict[str, Any]) -> None:
        from tfdistr import tf_internals

        vars(self).update(state)
        self._dataset = tf_internals.deserialized_dataset(*state["_dataset"])


def _describe_state(op: str) -> str:
    if "Variable" in op:
        return f"a variable ({op}), as Keras layers with random numbers have, such as RandomFlip"
    return f"random numbers ({op})" if "Random" in op else op


class GivenBatches:
    """The caller's ``PyDataset`` or generator, the argument ``name``, as a function for ``Source``."""

    gives_batches = True

    def __init__(self, batches: keras.utils.PyDataset | Iterator[object], name: str) -> None:
        self._batches, self._name = batches, name
        if is_py_dataset(batches):
            count_batches(batches, name)

    def __call__(self) -> Any:
        """Return the object."""
        return self._batches

    def __getstate__(self) -> dict[str, object]:
        if is_py_dataset(self._batches):
            return vars(self)
        raise ArgumentError(
            f"Cannot serialize the generator `{self._name}` for the workers of `cluster`.",
            received=f"a {type(self._batches).__name__}",
            fix=f"Pass the function that makes the generator: {self._name}=batches, and not batches().",
        )


class Pull:
    """An R function that returns the next batch at each call, and None at the end of a pass."""

    def __init__(self, first: object, more: Callable[[], object]) -> None:
        self._waiting = [first]
        self._more = more

    def __iter__(self) -> Iterator[Any]:
        while (batch := self._waiting.pop() if self._waiting else self._more()) is not None:
            yield batch


def needs_steps(name: str, argument: str | None = None) -> ArgumentError:
    """Return the error for a generator, the argument ``name``: workers must know its number of batches."""
    argument = argument or ("validation_steps" if name == "validation_data" else "steps_per_epoch")
    return ArgumentError(
        f"Several workers need `{argument}`, the number of batches of an epoch.",
        received=f"`{name}` yields batches one after the other, and {argument} is not set",
        fix=f"Pass {argument}=100, for example.",
    )


def is_py_dataset(value: object) -> bool:
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


def pass_of(batches: keras.utils.PyDataset, order: Array) -> Iterator[object]:
    """Yield the batches of one pass over a ``PyDataset``, whose workers prefetch some of them."""
    if batches.workers <= 1:
        for number in order:
            yield batches[int(number)]
        return
    left = collections.deque(map(int, order))
    waiting: collections.deque[Future[object]] = collections.deque()
    with ThreadPoolExecutor(batches.workers) as pool:
        while left or waiting:
            while left and len(waiting) < batches.max_queue_size:
                waiting.append(pool.submit(batches.__getitem__, left.popleft()))
            yield waiting.popleft().result()
