"""Encoded images, which TensorFlow decodes and resizes, as in Keras."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfdistr.data.readers.blocks import Array, Leaf
from tfdistr.data.readers.paths import first_line
from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import check_choice, check_int

CHANNELS = {"rgb": 3, "grayscale": 1, "rgba": 4}


class Images:
    """The decoder of a data set's images to arrays of one shape.

    Args:
        size: Height and width to which images are resized; None if all have one size.
        color_mode: "rgb", "grayscale" or "rgba".
        first: The first image, a JPEG, PNG, GIF or BMP file.
        place: Where it is, for errors.

    Attributes:
        leaf: The array that an image becomes: of uint8, or of float32 if images are resized.

    Raises:
        ArgumentError: The first image cannot be decoded.
    """

    def __init__(self, size: tuple[int, int] | None, color_mode: str, first: bytes, place: str) -> None:
        self._size, self._channels = size, CHANNELS[color_mode]
        self._shape: tuple[int, ...] | None = (*size, self._channels) if size else None
        self._shape = self.one(first, place).shape
        self.leaf = Leaf(np.dtype(np.float32 if size else np.uint8), self._shape)
        self._compiled: Callable[..., Any] | None = None
        self._starting = threading.Lock()

    def all(self, data: Sequence[bytes] | Array, place: Callable[[int], str]) -> Array:
        """Decode images, all of them in one TensorFlow call.

        Args:
            data: The images.
            place: Returns the place of the image with this position in ``data``, for errors.

        Raises:
            ArgumentError: An image cannot be decoded, or has another size than the first one.
        """
        import tensorflow as tf

        with self._starting:
            self._compiled = self._compiled or tf.function(
                self.in_graph, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
            )
        try:
            with tf.device("CPU:0"):
                images: Array = self._compiled(tf.constant(data, tf.string, [len(data)])).numpy()
        except tf.errors.OpError:  # its message does not name the image
            images = np.empty((len(data), *self.leaf.shape), self.leaf.kind)
            for number, one in enumerate(data):
                images[number] = self.one(one, place(number))
        return images

    def one(self, data: bytes, place: str) -> Array:
        """Decode an image; see ``all``."""
        import tensorflow as tf

        try:
            with tf.device("CPU:0"):
                image = self._decoded(data)
        except tf.errors.OpError as error:
            raise ArgumentError(
                "Each image must be a whole JPEG, PNG, GIF or BMP file.",
                received=f"{place}: {first_line(error)}",
                fix="Write the image again, or leave it out of the data.",
            ) from error
        array: Array = image.numpy()
        if self._shape is not None and array.shape != self._shape:
            one, other = (" x ".join(map(str, shape[:2])) for shape in (array.shape, self._shape))
            raise ArgumentError(
                "Images of several sizes need `image_size`.",
                received=f"{place} of {one} pixels, where the first image has {other}",
                fix=f"Pass image_size={self._shape[:2]}, for example.",
            )
        return array

    def in_graph(self, data: Any) -> Any:
        """Decode a vector of images in a graph. An invalid image is a TensorFlow error."""
        import tensorflow as tf

        leaf = self.leaf
        data = tf.ensure_shape(data, [None])

        def one(data: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(self._decoded(data), leaf.shape)

        return tf.map_fn(one, data, fn_output_signature=tf.TensorSpec(leaf.shape, leaf.kind))

    def _decoded(self, data: Any) -> Any:
        import tensorflow as tf

        image = tf.io.decode_image(data, self._channels, expand_animations=False)
        image.set_shape((None, None, self._channels))
        return tf.image.resize(image, self._size) if self._size else image


def image_options(image_size: Any = None, color_mode: Any = None) -> dict[str, Any]:
    """Check the arguments of images."""
    if image_size is not None:
        if not isinstance(image_size, list | tuple) or len(image_size) != 2:
            raise ArgumentError(
                "`image_size` must be the height and the width of the images in pixels.",
                received=repr(image_size),
                fix="Pass image_size=(180, 180), for example.",
            )
        image_size = tuple(check_int("image_size", side) for side in image_size)
    mode = "rgb" if color_mode is None else check_choice("color_mode", color_mode, tuple(CHANNELS))
    return {"image_size": image_size, "color_mode": mode}
