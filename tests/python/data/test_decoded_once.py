"""Each worker decodes its own examples and no others: the calls of ``map`` are counted."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfdistr.data.order.context import WorkerContext
from tfdistr.data.pipeline.worker_data import make_data

EXAMPLES, BATCH, PASSES = 103, 10, 4
STEPS = -(-EXAMPLES // BATCH)

Decode = Callable[[tf.Tensor], tf.Tensor]


def numbers() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(tf.range(EXAMPLES, dtype=tf.int64))


def in_order() -> tf.data.Dataset:
    return numbers().filter(lambda i: True)


# Sources, given what decodes an example.
SHARED: dict[str, Callable[[Decode], Callable[..., tf.data.Dataset]]] = {
    "ctx.shard": lambda decode: lambda ctx: ctx.shard(numbers()).map(decode),
    "ctx.shard in order": lambda decode: lambda ctx: ctx.shard(in_order()).map(decode),
    "no ctx.shard": lambda decode: lambda: numbers().map(decode),
}


class Decoder:
    """Decodes a number, and notes that it did. Python that keeps no state, as far as TensorFlow knows."""

    def __init__(self, stateful: bool = False) -> None:
        self.calls: list[int] = []
        self.stateful = stateful

    def __call__(self, number: tf.Tensor) -> tf.Tensor:
        decoded = tf.numpy_function(self._decode, [number], tf.int64, stateful=self.stateful)
        decoded.set_shape([])
        return decoded

    def _decode(self, number: Any) -> Any:
        self.calls.append(int(number))
        return np.int64(10 * number)


def run(name: str, workers: int, shuffle: bool) -> tuple[list[list[list[int]]], list[list[int]]]:
    """The batches of each worker over some passes, and what it decoded for them."""
    found, decoded = [], []
    for index in range(workers):
        decoder = Decoder()
        context = WorkerContext(workers, index, BATCH, seed=3, shuffle=shuffle)
        data = make_data(SHARED[name](decoder), context)
        assert data.steps == STEPS
        found.append([batch.numpy().tolist() for batch in data.dataset.take(PASSES * STEPS)])
        decoded.append(list(decoder.calls))
    return found, decoded


@pytest.mark.parametrize(
    ("name", "shuffle"), [("ctx.shard in order", True), ("no ctx.shard", True), ("ctx.shard", False)]
)
def test_each_worker_decodes_its_own_examples(name, shuffle):
    (one,), _ = run(name, 1, shuffle)
    for workers in (1, 3):
        found, decoded = run(name, workers, shuffle)
        assert [sum(parts, []) for parts in zip(*found, strict=True)] == one  # noqa: RUF017
        for batches, calls in zip(found, decoded, strict=True):
            own = Counter(i // 10 for batch in batches for i in batch)
            ahead = Counter(calls)
            ahead.subtract(own)
            # All that is used was decoded once each time; what is read ahead, at most a pass, comes later.
            assert min(ahead.values()) in (0, 1)
            assert max(ahead.values()) <= 2
            if not shuffle:
                assert set(calls) == set(own)
        total = sum(map(len, decoded))
        assert total >= PASSES * EXAMPLES
        if workers > 1:
            assert max(map(len, decoded)) < PASSES * EXAMPLES * 0.8


def test_a_map_that_keeps_a_state_runs_for_all_examples_in_order():
    decoder = Decoder(stateful=True)
    data = make_data(lambda: numbers().map(decoder), WorkerContext(2, 1, BATCH, shuffle=False))
    list(data.dataset.take(STEPS))
    assert decoder.calls[:EXAMPLES] == list(range(EXAMPLES))


def test_a_cache_after_shard_keeps_what_was_decoded():
    """Also where a worker has no row of the last batch, or of any."""
    found, workers, batch_size = [], 6, 4
    for index in range(workers):
        decoder = Decoder()
        context = WorkerContext(workers, index, batch_size, seed=3)
        data = make_data(lambda ctx, decoder=decoder: ctx.shard(numbers()).map(decoder).cache(), context)
        steps = data.steps
        batches = [batch.numpy().tolist() for batch in data.dataset.take(3 * steps)]
        assert batches[:steps] == batches[steps : 2 * steps] == batches[2 * steps :]
        used = sorted(i for batch in batches[:steps] for i in batch)
        assert sorted(10 * i for i in decoder.calls) == used
        found += used
    assert sorted(found) == [10 * i for i in range(EXAMPLES)]


def test_what_the_function_reads_itself_comes_to_an_end():
    seen: list[int] = []

    def function(ctx: WorkerContext) -> tf.data.Dataset:
        share = ctx.shard(numbers())
        seen.extend(int(i) for i in share)
        return share

    data = make_data(function, WorkerContext(2, 1, BATCH, seed=3))
    batches = [batch.numpy().tolist() for batch in data.dataset.take(STEPS)]
    assert seen == [i for batch in batches for i in batch]
