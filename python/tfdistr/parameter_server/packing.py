"""Packing many tensors into few: each tensor from a worker to the chief takes its own round trip."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Packing:
    """Packs a nested value into one tensor for each type, in a graph, and unpacks them outside of it.

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
