"""The dispatch of steps to the workers in packed tensors, and the receipt of their results."""

from __future__ import annotations

import queue
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfdistr.tf_internals.remote_calls import schedule

_WAIT = 0.2  # seconds after which an error of the coordinator is detected


class Dispatcher:
    """The dispatch of functions to free workers; results come in the order of completion.

    If a worker dies, its unfinished function is sent again, to another worker or to its replacement.
    """

    def __init__(self, strategy: tf.distribute.experimental.ParameterServerStrategy) -> None:
        self._coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
        self._results: queue.SimpleQueue[tuple[object, Any, Any]] = queue.SimpleQueue()
        # Results that came while another owner waited.
        self._results_of: defaultdict[int, deque[tuple[Any, Any]]] = defaultdict(deque)
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
                with tf.device(self._here):  # copied here before the worker may be lost
                    result = tf.nest.map_structure(tf.identity, remote)
            self._results.put((owner, key, result))

        schedule(self._coordinator, run)

    def receive(self, owner: object) -> tuple[Any, Any]:
        """Wait for a function of ``owner`` to end, and return its key and its result."""
        mine = self._results_of[id(owner)]
        while not mine:
            try:
                to, key, result = self._results.get(timeout=_WAIT)
            except queue.Empty:
                self._coordinator.done()  # raises the error of a function
            else:
                self._results_of[id(to)].append((key, result))
        return mine.popleft()

    def finish(self, owner: object) -> list[Any]:
        """Wait until all workers are idle. Return the results that ``owner`` has not received."""
        self._coordinator.join()
        while not self._results.empty():
            to, key, result = self._results.get()
            self._results_of[id(to)].append((key, result))
        return [result for _, result in self._results_of.pop(id(owner), ())]


class Packing:
    """The packing of a nested value into one tensor per type, in a graph, and the unpacking outside of it.

    Tensors whose shape the graph does not know stay as they are.
    """

    def __init__(self) -> None:
        self._form: Any = None
        self._places: dict[tf.DType, list[int]] = {}
        self._shapes: list[tf.TensorShape] = []

    def pack(self, value: Any) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        """Return one tensor for all tensors of a type in ``value``, and the tensors that stay as they are."""
        parts = [tf.convert_to_tensor(part) for part in tf.nest.flatten(value, expand_composites=True)]
        self._form, self._shapes = value, [part.shape for part in parts]
        self._places = {}
        for place, part in enumerate(parts):
            if part.shape.is_fully_defined():
                self._places.setdefault(part.dtype, []).append(place)
        together = [
            tf.concat([tf.reshape(parts[place], [-1]) for place in places], 0)
            for places in self._places.values()
        ]
        return together, [parts[place] for place in self._alone()]

    def unpack(self, packed: tuple[list[tf.Tensor], list[tf.Tensor]]) -> Any:
        """Return the value that was packed."""
        together, alone = packed
        parts: list[Any] = [None] * len(self._shapes)
        for flat, places in zip(together, self._places.values(), strict=True):
            shapes = [self._shapes[place] for place in places]
            for place, part, shape in zip(
                places, tf.split(flat, [shape.num_elements() for shape in shapes]), shapes, strict=True
            ):
                parts[place] = tf.reshape(part, shape)
        for place, part in zip(self._alone(), alone, strict=True):
            parts[place] = part
        return tf.nest.pack_sequence_as(self._form, parts, expand_composites=True)

    def _alone(self) -> list[int]:
        return [place for place, shape in enumerate(self._shapes) if not shape.is_fully_defined()]
