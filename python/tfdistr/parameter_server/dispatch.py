"""Sending steps to the workers, and receiving their results."""

from __future__ import annotations

import queue
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfdistr.tf_internals.remote_calls import schedule

_WAIT = 0.2  # seconds after which an error of the coordinator is noticed


class Dispatcher:
    """Sends functions to free workers, and returns their results in the order in which they end.

    If a worker dies, its unfinished function is sent again, to another worker or to its replacement.

    Args:
        strategy: The strategy of the chief.
    """

    def __init__(self, strategy: tf.distribute.experimental.ParameterServerStrategy) -> None:
        self._coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
        self._results: queue.SimpleQueue[tuple[object, Any, Any]] = queue.SimpleQueue()
        # Results that came while another owner waited.
        self._kept: defaultdict[int, deque[tuple[Any, Any]]] = defaultdict(deque)
        self._here = "/job:chief/replica:0/task:0/device:CPU:0"

    def send(
        self,
        function: tf.types.experimental.ConcreteFunction,
        place: tuple[int, int, int],
        owner: object,
        key: Any = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Make a worker call a function.

        Args:
            function: Takes an int64 vector.
            place: The vector: step, number of shares, and the share.
            owner: The receiver of the result.
            key: Returned with the result.
            wanted: Called when a worker is free for the function. If it returns False, the result is None.
        """
        with tf.device(self._here):
            argument = tf.constant(place, tf.int64)

        def run() -> None:
            result = None
            if wanted():
                remote = function(argument)
                with tf.device(self._here):  # copied here before the worker may be gone
                    result = tf.nest.map_structure(tf.identity, remote)
            self._results.put((owner, key, result))

        schedule(self._coordinator, run)

    def receive(self, owner: object) -> tuple[Any, Any]:
        """Wait for a function of ``owner`` to end, and return its key and its result.

        Raises:
            tf.errors.OpError: A function has failed.
        """
        mine = self._kept[id(owner)]
        while not mine:
            try:
                to, key, result = self._results.get(timeout=_WAIT)
            except queue.Empty:
                self._coordinator.done()  # raises the error of a function
            else:
                self._kept[id(to)].append((key, result))
        return mine.popleft()

    def finish(self, owner: object) -> list[Any]:
        """Wait until all workers are idle. Return the results that ``owner`` has not received."""
        self._coordinator.join()
        while not self._results.empty():
            to, key, result = self._results.get()
            self._kept[id(to)].append((key, result))
        return [result for _, result in self._kept.pop(id(owner), ())]
