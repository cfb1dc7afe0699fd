"""What a thread reads ahead is what the loop would read itself."""

import gc
import threading
import time

import numpy as np
import pytest
from launched import wait_for

from tfdistr.data.order.shuffle_order import Order
from tfdistr.data.pipeline.index_batches import Batches, ReadAhead
from tfdistr.errors import ArgumentError

EXAMPLES, BATCH = 22, 4  # five batches, and one of two rows


class Rows:
    """Rows that are their indices, and what was asked for; example ``damaged`` cannot be read."""

    def __init__(self, damaged: int | None = None) -> None:
        self.damaged = damaged
        self.asked: list[list[int]] = []
        self.threads: set[str] = set()

    def take(self, indices: np.ndarray) -> tuple[np.ndarray]:
        self.asked.append(indices.tolist())
        self.threads.add(threading.current_thread().name)
        if self.damaged in indices:
            raise ArgumentError("A file must be whole.", received="a torn file", fix="Write it again.")
        return (indices.copy(),)


def made(rows: Rows) -> Batches:
    return Batches(rows.take, Order(EXAMPLES, BATCH), 1, 0, ahead=True)


@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_the_batches_are_those_of_any_step(at_a_time):
    ahead, expected = ReadAhead(made(Rows()), at_a_time), made(Rows())
    for step, count in [(0, 1), (1, 3), (2, 9), (5, 4), (6, 1), (7, 2), (0, 2), (1000, 3), (999, 1)]:
        (found,) = ahead.batches(step, count)
        assert 1 <= len(found) <= count
        for number, batch in enumerate(found):
            np.testing.assert_array_equal(batch, expected.batch(step + number)[0])


def test_the_following_steps_are_read_before_they_are_wanted():
    rows = Rows()
    ahead = ReadAhead(made(rows), 2)
    ahead.batches(0, 1)
    assert wait_for(lambda: len(rows.asked) == 2, 10)
    ahead.batches(1, 1)
    time.sleep(0.1)
    assert [len(asked) for asked in rows.asked] == [8, 8], "two steps are read, and the two after them"
    assert rows.threads == {"tfdistr-read-ahead_0"}


def test_an_error_is_raised_where_its_batches_are_wanted():
    ahead = ReadAhead(made(Rows(damaged=9)), 1)
    assert [len(ahead.batches(step, 1)[0]) for step in (0, 1)] == [1, 1]
    for _ in range(2):
        with pytest.raises(ArgumentError, match="a torn file"):
            ahead.batches(2, 1)


def test_the_thread_ends_with_the_loop():
    before = set(threading.enumerate())
    ahead = ReadAhead(made(Rows()), 1)
    ahead.batches(0, 1)
    (thread,) = set(threading.enumerate()) - before
    del ahead
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
