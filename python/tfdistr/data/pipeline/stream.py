"""Examples that must be read in order: passes, the examples of each worker, and their batches."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfdistr.data.order.shard import Own, bounds
from tfdistr.data.order.shuffle_order import Order
from tfdistr.data.pipeline.random_access import batched, is_ragged, keep_spec, no_rows

#: A function that makes the dataset of a pass from its number.
Pass = Callable[[tf.Tensor], tf.data.Dataset]


def passes(one_pass: Pass, first: int = 0, count: Callable[[], int] = lambda: -1) -> tf.data.Dataset:
    """Concatenate ``count()`` passes from ``first`` on, or endless ones (-1); an empty pass is the last."""
    new, numbers = itertools.count(), dict[int, int]()  # the next pass of each iterator

    def begin() -> Any:
        iterator = next(new)
        numbers[iterator] = first
        return iterator, count()

    def following(iterator: int) -> int:
        numbers[iterator] += 1
        return numbers[iterator] - 1

    def of_iterator(iterator: tf.Tensor, times: tf.Tensor) -> tf.data.Dataset:
        number = tf.data.Dataset.from_tensors(iterator).map(lambda i: _ask(following, i))
        return number.flat_map(one_pass).repeat(times)

    return _once(lambda: tuple(tf.numpy_function(begin, [], [tf.int64] * 2))).flat_map(of_iterator)


def one_pass_each_time(one_pass: Pass) -> tf.data.Dataset:
    """Make a dataset that ends after a pass, and starts the next pass when it is read again."""
    ended = itertools.count(1)
    number = [0]

    def end() -> int:
        number[0] = next(ended)
        return 0

    current = _once(lambda: _ask(lambda: number[0])).flat_map(one_pass).prefetch(tf.data.AUTOTUNE)
    # Read after the last element of the pass: an iterator that stops before does not end the pass.
    return current.concatenate(_once(lambda: _ask(end)).flat_map(current.take))


def shuffled(dataset: tf.data.Dataset, buffer: int, seed: int, number: tf.Tensor) -> tf.data.Dataset:
    """Shuffle a dataset over ``buffer`` elements, in the order of pass ``number``."""
    seeds = tf.stack([tf.constant(seed, tf.int64), number])
    own = tf.random.stateless_uniform([], seeds, minval=None, maxval=None, dtype=tf.int64)
    # The order also depends on the seed of the graph, which a model function may have set. If that is 0,
    # TensorFlow compares the other one with a number, which a tensor of a graph cannot be.
    graph = tf.compat.v1.get_default_graph()
    before, graph.seed = graph.seed, seed or 1
    try:
        return dataset.shuffle(buffer, seed=own, reshuffle_each_iteration=False)
    finally:
        graph.seed = before


def own_examples(
    dataset: tf.data.Dataset, order: Order, shares: int, own: Own, skipped: object
) -> tf.data.Dataset:
    """Take a worker's examples from one pass, without the batches before ``skipped``; see ``bounds``."""
    size = tf.constant(order.batch_size, tf.int64)

    def is_own(position: tf.Tensor, *_: object) -> tf.Tensor:
        first, end = bounds(order.rows(position // size), shares, own)
        row = position % size
        return (row >= first) & (row < end)

    used = dataset.enumerate().take(min(order.examples, order.batches * order.batch_size))
    examples = used.skip(skipped * size).filter(is_own).map(lambda _, example: example)
    return keep_spec(examples, dataset.element_spec)


def in_batches(
    examples: tf.data.Dataset, order: Order, shares: int, own: Own, start: int, end: int | None = None
) -> tf.data.Dataset:
    """Make a worker's batch for each global step from ``start`` on; with ``end``, read all examples."""

    def rows(step: tf.Tensor) -> tf.Tensor:
        first, end = bounds(order.rows(step), shares, own)
        return end - first

    ragged = is_ragged(examples)
    steps = tf.data.Dataset.counter(start) if end is None else tf.data.Dataset.range(start, end)
    step_of_each = steps.flat_map(lambda step: tf.data.Dataset.from_tensors(step).repeat(rows(step)))
    batches = (
        tf.data.Dataset.zip(examples, step_of_each)  # the examples come first, so that their end is read
        .group_by_window(
            lambda _, step: step,
            lambda _, group: batched(group, order.batch_size, ragged),
            window_size_func=rows,
        )
        .map(lambda batch, _: batch)
    )
    if int(rows(tf.constant(0, tf.int64))) and int(rows(tf.constant(order.batches - 1, tf.int64))):
        return batches
    # If this worker's share of a small batch is empty, it gets a batch without rows.
    empty = tf.data.Dataset.from_tensors(0).map(lambda _: no_rows(batches.element_spec)).repeat()
    choices = steps.map(lambda step: tf.cast(rows(step) == 0, tf.int64)).concatenate(
        tf.data.Dataset.from_tensors(tf.constant(0, tf.int64))
    )
    return tf.data.Dataset.choose_from_datasets([batches, empty], choices)


def count(dataset: tf.data.Dataset) -> int:
    """Count the examples by reading all of them."""
    return int(dataset.reduce(tf.constant(0, tf.int64), lambda n, *_: n + 1))


def _once(value: Callable[[], object]) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(0).map(lambda _: value())


def _ask(function: Callable[..., int], *arguments: tf.Tensor) -> tf.Tensor:
    """Call a Python function when an iterator reaches this point."""
    answer = tf.numpy_function(function, arguments, tf.int64)
    answer.set_shape([])
    return answer
