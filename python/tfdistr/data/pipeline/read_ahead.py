"""Batches that a thread reads while the steps before them run."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import tensorflow as tf

from tfdistr.data.pipeline.index_batches import Batches


class ReadAhead:
    """A worker's batches in NumPy arrays, of which the next ones are read meanwhile.

    Only the thread reads. An error of it is raised where its batches are wanted.

    Args:
        batches: The batches.
        at_a_time: Number of steps that are read at once. At most twice as many are in the memory.
    """

    def __init__(self, batches: Batches, at_a_time: int) -> None:
        self._batches, self._at_a_time = batches, at_a_time
        self._thread = ThreadPoolExecutor(1, "tfdistr-read-ahead")
        # The batches that were read, from step `_first` on, and those that are being read, after them.
        self._first, self._read, self._count = 0, None, 0
        self._reading: tuple[int, Future[Any]] | None = None

    def batches(self, step: int, count: int) -> Any:
        """Return the batches from ``step`` on, as ``Batches.batches`` does; at most ``count``, at least one.

        Raises:
            ArgumentError: See the data set.
        """
        if not self._first <= step < self._first + self._count:
            self._advance(step)
        start = step - self._first
        return tf.nest.map_structure(lambda array: array[start : start + count], self._read)

    def _advance(self, step: int) -> None:
        first, reading = self._reading or (step, None)
        if reading is None or first != step:
            reading = self._submit(step)
        self._reading = (step, reading)  # an interrupt may come while it waits
        self._read = reading.result()
        self._first, self._count = step, len(tf.nest.flatten(self._read)[0])
        following = step + self._count
        self._reading = (following, self._submit(following))

    def _submit(self, step: int) -> Future[Any]:
        return self._thread.submit(self._batches.batches, step, self._at_a_time)
