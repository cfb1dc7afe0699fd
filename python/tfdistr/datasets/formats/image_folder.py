"""Images in a folder for each class. TensorFlow decodes and resizes them, as in Keras."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfdistr._utils.arguments import one_of, whole
from tfdistr.datasets.formats.blocks import Array, Leaf, Single
from tfdistr.datasets.formats.said import said
from tfdistr.errors import ArgumentError

CHANNELS = {"rgb": 3, "grayscale": 1, "rgba": 4}

#: The endings of the files that keras.utils.image_dataset_from_directory() reads.
_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
#: Number of images that are looked at before a job begins.
_LOOKED_AT = 32


class ImageFolder(Single):
    """The images of a folder that has a folder for each class: pairs of an image and the number of its class.

    Args:
        folder: The path.
        image_size: Height and width to which images are resized; None if all have one size.
        color_mode: "rgb", "grayscale" or "rgba".

    Attributes:
        class_names: The names of the classes, in the order of their numbers.

    Raises:
        ArgumentError: There is no image, or the first one cannot be decoded.
    """

    def __init__(self, folder: str, image_size: tuple[int, int] | None, color_mode: str) -> None:
        self.folder, self.class_names = folder, _classes(folder)
        self._names: list[str] = []
        labels: list[int] = []
        for label, name in enumerate(self.class_names):
            found = _images(os.path.join(folder, name))
            self._names += [os.path.join(name, one) for one in found]
            labels += [label] * len(found)
        if not self._names:
            raise _no_images(folder, f"{len(self.class_names)} folders without an image")
        self._labels = np.array(labels, np.int32)
        self._written = np.zeros(len(labels), np.int64)  # when an image was written, as its first reading saw
        self._size, self._channels = image_size, CHANNELS[color_mode]
        self._together: Callable[..., Any] | None = None
        self._starting = threading.Lock()
        self._shape: tuple[int, ...] | None = (*image_size, self._channels) if image_size else None
        self._shape = self._image(0).shape
        kind = np.dtype(np.float32 if image_size else np.uint8)
        super().__init__((Leaf(kind, self._shape), Leaf(self._labels.dtype)), len(labels))

    @property
    def identity(self) -> str:
        """The names of the images."""
        return hashlib.sha256("\0".join(self._names).encode(errors="surrogateescape")).hexdigest()

    def check(self) -> None:
        """Decode some of the images."""
        for index in np.linspace(0, len(self) - 1, min(_LOOKED_AT, len(self)), dtype=int).tolist():
            self._image(index)

    def take(self, indices: Array) -> list[Array]:
        """Decode images, all of them in one call of TensorFlow."""
        import tensorflow as tf

        numbers = indices.tolist()
        data = [self._read(os.path.join(self.folder, self._names[number]), number) for number in numbers]
        with self._starting:
            self._together = self._together or self._compiled()
        try:
            with tf.device("CPU:0"):
                images = self._together(tf.constant(data, tf.string, [len(data)])).numpy()
        except tf.errors.OpError:  # its message does not name the image
            leaf = self.structure[0]
            images = np.empty((len(numbers), *leaf.shape), leaf.kind)
            for place, number in enumerate(numbers):
                images[place] = self._image(number)
        return [images, self._labels[indices]]

    def _compiled(self) -> Callable[..., Any]:
        import tensorflow as tf

        leaf = self.structure[0]

        def one(data: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(self._decoded(data), leaf.shape)

        def together(data: tf.Tensor) -> tf.Tensor:
            spec = tf.TensorSpec(leaf.shape, leaf.kind)
            return tf.map_fn(one, data, fn_output_signature=spec)

        made: Callable[..., Any] = tf.function(
            together, input_signature=[tf.TensorSpec([None], tf.string)], autograph=False
        )
        return made

    def _decoded(self, data: Any) -> Any:
        import tensorflow as tf

        image = tf.io.decode_image(data, self._channels, expand_animations=False)
        image.set_shape((None, None, self._channels))
        return tf.image.resize(image, self._size) if self._size else image

    def _image(self, index: int) -> Array:
        import tensorflow as tf

        path = os.path.join(self.folder, self._names[index])
        data = self._read(path, index)
        try:
            with tf.device("CPU:0"):
                image = self._decoded(data)
        except tf.errors.OpError as error:
            raise ArgumentError(
                "Each image must be a whole JPEG, PNG, GIF or BMP file.",
                received=f"{path}: {said(error)}",
                fix="Write the image again, or take it out of the folder.",
            ) from error
        array: Array = image.numpy()
        if self._shape is not None and array.shape != self._shape:
            one, other = (" x ".join(map(str, shape[:2])) for shape in (array.shape, self._shape))
            raise ArgumentError(
                "Images of several sizes need `image_size`.",
                received=f"{path} of {one} pixels, where the first image has {other}",
                fix=f"Pass image_size={self._shape[:2]}, for example.",
            )
        return array

    def _read(self, path: str, index: int) -> bytes:
        try:
            with open(path, "rb") as file:
                written = os.fstat(file.fileno()).st_mtime_ns
                data = file.read()
        except OSError as error:
            raise _changed(f"{path}, which is gone ({error.strerror})") from error
        if self._written[index] not in (0, written):
            raise _changed(f"{path}, which was written again")
        self._written[index] = written
        return data


def image_options(image_size: Any = None, color_mode: Any = None) -> dict[str, Any]:
    """Check the arguments of a folder of images."""
    if image_size is not None:
        if not isinstance(image_size, list | tuple) or len(image_size) != 2:
            raise ArgumentError(
                "`image_size` must be the height and the width of the images in pixels.",
                received=repr(image_size),
                fix="Pass image_size=(180, 180), for example.",
            )
        image_size = tuple(whole("image_size", side) for side in image_size)
    mode = "rgb" if color_mode is None else one_of("color_mode", color_mode, tuple(CHANNELS))
    return {"image_size": image_size, "color_mode": mode}


def find_folder(files: Any) -> tuple[str, ...]:
    """Return the absolute path of the folder.

    Raises:
        ArgumentError: There is no such folder.
    """
    if not isinstance(files, str | os.PathLike) or not os.path.isdir(files):
        raise ArgumentError(
            "`files` must be a folder that has a folder of images for each class.",
            received=repr(os.fspath(files)) if isinstance(files, os.PathLike) else repr(files),
            fix='Pass files="images", where images/cats and images/dogs are folders, for example.',
        )
    return (os.path.abspath(files),)


def open_images(files: Any, sizes: Any, options: Mapping[str, Any]) -> ImageFolder:
    """Open the folder that is described."""
    return ImageFolder(files[0], options["image_size"], options["color_mode"])


def _classes(folder: str) -> tuple[str, ...]:
    """The classes in the order of Keras: sorted by name."""
    try:
        with os.scandir(folder) as entries:
            return tuple(sorted(entry.name for entry in entries if entry.is_dir() and entry.name[0] != "."))
    except OSError as error:
        raise _changed(f"{folder}, which is gone ({error.strerror})") from error


def _images(folder: str) -> list[str]:
    """The images of a class, also in its subfolders, in the order of Keras."""
    found = []
    for place, _, names in sorted(os.walk(folder)):
        own = (name for name in sorted(names) if name.lower().endswith(_ENDINGS))
        found += [os.path.relpath(os.path.join(place, name), folder) for name in own]
    return found


def _no_images(folder: str, received: str) -> ArgumentError:
    return ArgumentError(
        "`files` must be a folder that has a folder of images for each class.",
        received=f"{folder}: {received}",
        fix=f"Images are files that end in {', '.join(_ENDINGS)}.",
    )


def _changed(received: str) -> ArgumentError:
    return ArgumentError(
        "The files of a data set must stay as they are while they are read.",
        received=received,
        fix="Write other files beside them, and start again.",
    )
