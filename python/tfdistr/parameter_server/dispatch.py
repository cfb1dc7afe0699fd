"""Handing steps out to the workers, and taking in what has become of them."""

from __future__ import annotations

import queue
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfdistr._private.remote_calls import schedule

_WAIT = 0.2  # seconds after which an error of the coordinator is noticed


class Dispatcher:
    """Sends functions to whichever worker is free, and has their results in the order in which they end.

    A function that a worker could not end, because it died, is sent again, to another one or to that which
    takes its place.

    Args:
        strategy: The chief's.
    """

    def __init__(self, strategy: tf.distribute.experimental.ParameterServerStrategy) -> None:
        self._coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
        self._results: queue.SimpleQueue[tuple[object, Any, Any]] = queue.SimpleQueue()
        # Those that have come while somebody else waited.
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
        """Have a worker call a function.

        Args:
            function: Takes an int64 vector.
            place: The vector: step, number of shares, and the share.
            owner: Who is to receive the result.
            key: Comes back with it.
            wanted: Asked when a worker is free for it; if the answer is no, the result is None.
        """
        with tf.device(self._here):
            argument = tf.constant(place, tf.int64)

        def run() -> None:
            result = None
            if wanted():
                remote = function(argument)
                with tf.device(self._here):  # here, before the worker may be gone
                    result = tf.nest.map_structure(tf.identity, remote)
            self._results.put((owner, key, result))

        schedule(self._coordinator, run)

    def receive(self, owner: object) -> tuple[Any, Any]:
        """The key and the result of a function of ``owner`` that has ended; waits for one.

        Raises:
            tf.errors.OpError: A function has failed.
        """
        mine = self._kept[id(owner)]
        while not mine:
            try:
                to, key, result = self._results.get(timeout=_WAIT)
            except queue.Empty:
                self._coordinator.done()  # which raises what a function has raised
            else:
                self._kept[id(to)].append((key, result))
        return mine.popleft()

    def finish(self, owner: object) -> list[Any]:
        """Wait until no worker is at work any more; the results that ``owner`` has not received."""
        self._coordinator.join()
        while not self._results.empty():
            to, key, result = self._results.get()
            self._kept[id(to)].append((key, result))
        return [result for _, result in self._kept.pop(id(owner), ())]
