"""The dispatch of steps to the workers in packed tensors, and the receipt of their results."""

from __future__ import annotations

import queue
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfdistr.tf_internals.remote_calls import schedule

_WAIT = 0.2  # seconds after which an error of the coordinator is detected


class Dispatcher:
    """The dispatch of functions to free workers; results come in the order of completion.

    If a worker dies, its unfinished function is sent again, to another worker or to its replacement.
    """

    def __init__(self, strategy: tf.distribute.experimental.ParameterServerStrategy) -> None:
        self._coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)
        self._results: queue.SimpleQueue[tuple[object, object, object]] = queue.SimpleQueue()
        # Results that came while another owner waited.
        self._results_of: defaultdict[int, deque[tuple[object, object]]] = defaultdict(deque)
        self._here = "/job:chief/replica:0/task:0/device:CPU:0"

    def send(
        self,
        function: tf.types.experimental.ConcreteFunction,
        place: tuple[int, int, int],
        owner: object,
        key: object = None,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Make a free worker call a function of an int64 vector; None if it is not ``wanted`` any more."""
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


#: Tensors of steps: one for each type, with a row for each step, and those without a static shape.
Packed = tuple[list[tf.Tensor], list[tf.Tensor]]


class Packing:
    """The packing of nested values of one form, in a graph, into one tensor for each type: few are sent fast.

    Tensors whose shape the graph does not know stay as they are.
    """

    def __init__(self) -> None:
        self._form: Any = None
        self._places: dict[tf.DType, list[int]] = {}
        self._shapes: list[tf.TensorShape] = []

    def pack(self, value: object) -> Packed:
        """Pack the value of one step, in a graph."""
        parts = [tf.convert_to_tensor(part) for part in tf.nest.flatten(value, expand_composites=True)]
        self._form, self._shapes = value, [part.shape for part in parts]
        self._places = {}
        for place, part in enumerate(parts):
            if part.shape.is_fully_defined():
                self._places.setdefault(part.dtype, []).append(place)
        together = [
            tf.concat([tf.reshape(parts[place], [-1]) for place in places], 0)[tf.newaxis]
            for places in self._places.values()
        ]
        return together, [parts[place] for place in self._alone()]

    @staticmethod
    def join(packed: Sequence[Packed]) -> Packed:
        """Join the packed values of several steps, in a graph."""
        together = [tf.concat(rows, 0) for rows in zip(*(rows for rows, _ in packed), strict=True)]
        return together, [part for _, alone in packed for part in alone]

    def unpack(self, packed: Packed) -> Any:
        """Return the value of one step, in a graph."""
        together, alone = packed
        flat = [tf.split(row[0], self._sizes(places)) for row, places in self._rows(together)]
        return self._value(flat, alone, tf.reshape)

    def read(self, packed: Packed) -> list[Any]:
        """Return the value of each step, as NumPy arrays, outside of a graph."""
        together, alone = packed
        arrays = [(rows.numpy(), places) for rows, places in self._rows(together)]
        count = len(self._alone())
        return [
            self._value(
                [np.split(rows[step], np.cumsum(self._sizes(places))[:-1]) for rows, places in arrays],
                alone[step * count : (step + 1) * count], np.reshape,
            )
            for step in range(len(arrays[0][0]))
        ]  # fmt: skip

    def _value(self, flat: list[list[Any]], alone: list[Any], reshape: Callable[..., object]) -> Any:
        parts: list[Any] = [None] * len(self._shapes)
        for values, places in zip(flat, self._places.values(), strict=True):
            for place, part in zip(places, values, strict=True):
                parts[place] = reshape(part, self._shapes[place].as_list())
        for place, part in zip(self._alone(), alone, strict=True):
            parts[place] = part
        return tf.nest.pack_sequence_as(self._form, parts, expand_composites=True)

    def _rows(self, together: list[tf.Tensor]) -> Iterator[tuple[tf.Tensor, list[int]]]:
        return zip(together, self._places.values(), strict=True)

    def _sizes(self, places: list[int]) -> list[int]:
        return [self._shapes[place].num_elements() for place in places]

    def _alone(self) -> list[int]:
        return [place for place, shape in enumerate(self._shapes) if not shape.is_fully_defined()]
