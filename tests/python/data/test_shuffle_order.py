"""The order of the examples: a function of (seed, pass, step), whatever the number of workers."""

import pytest
import tensorflow as tf

from tfdistr.data.order.shuffle_order import Order

SIZES = [(1, 8), (7, 3), (100, 32)]


def batch(order: Order, step: int, num_workers: int = 1, index: int = 0) -> list[int]:
    return order.indices(tf.constant(step, tf.int64), num_workers, index).numpy().tolist()


def one_pass(order: Order, number: int = 0) -> list[int]:
    first = number * order.batches
    return [i for step in range(first, first + order.batches) for i in batch(order, step)]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("examples", "batch_size"), SIZES)
def test_a_pass_uses_every_example_once(examples, batch_size, shuffle):
    order = Order(examples, batch_size, seed=5, shuffle=shuffle)
    for number in (0, 1, 17):
        assert sorted(one_pass(order, number)) == list(range(examples))
    sizes = [len(batch(order, step)) for step in range(order.batches)]
    assert sizes[:-1] == [batch_size] * (order.batches - 1)
    assert sum(sizes) == examples


@pytest.mark.parametrize("workers", [2, 3, 5])
@pytest.mark.parametrize(("examples", "batch_size"), SIZES)
def test_the_workers_parts_make_the_batch_of_one_worker(examples, batch_size, workers):
    order = Order(examples, batch_size, seed=5, shuffle=True)
    for step in range(2 * order.batches):
        parts = [batch(order, step, workers, index) for index in range(workers)]
        assert [i for part in parts for i in part] == batch(order, step)
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(("examples", "batch_size"), [(7, 3), (12, 4), (101, 8), (8, 8)])
def test_drop_remainder_leaves_full_batches(examples, batch_size, shuffle):
    order = Order(examples, batch_size, seed=5, shuffle=shuffle, drop_remainder=True)
    assert order.batches == examples // batch_size
    for number in (0, 1, 17):
        found = one_pass(order, number)
        assert len(set(found)) == len(found) == order.batches * batch_size
    assert [len(batch(order, step)) for step in range(2 * order.batches)] == [batch_size] * 2 * order.batches
    kept = Order(examples, batch_size, seed=5, shuffle=shuffle)
    assert one_pass(order) == one_pass(kept)[: order.batches * batch_size]


@pytest.mark.parametrize("drop_remainder", [True, False])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_the_examples_before_a_step_are_counted(workers, drop_remainder):
    order = Order(13, 4, drop_remainder=drop_remainder)
    for index in range(workers):
        before = 0
        for step in range(3 * order.batches):
            assert order.examples_before(step, workers, index) == before
            before += len(batch(order, step, workers, index))


def test_without_shuffle_the_examples_come_as_they_are():
    order = Order(10, 4, seed=5)
    assert [batch(order, step) for step in range(4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9], [0, 1, 2, 3]]


def test_each_pass_and_each_seed_has_an_order_of_its_own():
    order = Order(50, 8, seed=5, shuffle=True)
    orders = [one_pass(order, number) for number in range(4)] + [one_pass(Order(50, 8, seed=6, shuffle=True))]
    assert len(set(map(tuple, orders))) == 5
    for batch_size in (8, 7):
        assert one_pass(order) == one_pass(Order(50, batch_size, seed=5, shuffle=True))


def test_any_step_is_found_without_the_ones_before():
    order = Order(5, 2, seed=5, shuffle=True)
    far = 999_999  # the first step of a pass
    walked = tf.data.Dataset.range(far + 3).skip(far).map(order.indices)
    assert [step.numpy().tolist() for step in walked] == [batch(order, far + i) for i in range(3)]
    assert sorted(one_pass(order, far // order.batches)) == list(range(5))


def test_large_seeds_and_many_examples():
    order = Order(10_000_000_000, 4, seed=2**32 - 1, shuffle=True)
    indices = batch(order, 2_499_999_999)
    assert len(set(indices)) == 4
    assert all(0 <= index < order.examples for index in indices)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    ("examples", "batch_size", "drop_remainder"),
    [(7, 3, False), (7, 3, True), (12, 4, False), (101, 8, True), (1, 1, False), (2, 8, False)],
)
def test_steps_that_are_found_together_are_those_found_one_by_one(
    examples, batch_size, shuffle, drop_remainder
):
    order = Order(examples, batch_size, 5, shuffle, drop_remainder)
    for workers, count in ((1, 1), (2, 3), (3, 1000)):
        for index in range(workers):
            for step in (0, 1, order.batches - 1, 5 * order.batches + order.batches // 2):
                block = order.block(step, count, workers, index)
                expected = [batch(order, step + i, workers, index) for i in range(len(block))]
                assert block.tolist() == expected
                assert block.dtype == "int64"
                # As many as asked for, or up to the end of the pass or its short batch.
                full = examples // batch_size
                number = step % order.batches
                assert len(block) == (min(count, full - number) if number < full else 1)
