"""Images: their decoding by TensorFlow, and a folder with a folder for each class."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfdistr.data.readers.blocks import Leaf, Single, some_of
from tfdistr.data.readers.paths import changed, first_line
from tfdistr.data.trees import Array
from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import check_choice, check_int

CHANNELS = {"rgb": 3, "grayscale": 1, "rgba": 4}


class Images:
    """The decoder of images to arrays of one shape: ``size``, or the shape of the first image."""

    def __init__(self, size: tuple[int, int] | None, color_mode: str, first: bytes, place: str) -> None:
        self._size, self._channels = size, CHANNELS[color_mode]
        self._shape: tuple[int, ...] | None = (*size, self._channels) if size else None
        self._shape = self.one(first, place).shape
        self.leaf = Leaf(np.dtype(np.float32 if size else np.uint8), self._shape)
        self._compiled: Callable[..., Any] | None = None
        self._starting = threading.Lock()

    def all(self, data: Sequence[bytes] | Array, place: Callable[[int], str]) -> Array:
        """Decode images, all of them in one TensorFlow call."""
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

    def in_graph(self, data: object) -> Any:
        """Decode a vector of images in a graph. An invalid image is a TensorFlow error."""
        import tensorflow as tf

        leaf = self.leaf
        data = tf.ensure_shape(data, [None])

        def one(data: tf.Tensor) -> tf.Tensor:
            return tf.ensure_shape(self._decoded(data), leaf.shape)

        return tf.map_fn(one, data, fn_output_signature=tf.TensorSpec(leaf.shape, leaf.kind))

    def _decoded(self, data: object) -> Any:
        import tensorflow as tf

        image = tf.io.decode_image(data, self._channels, expand_animations=False)
        image.set_shape((None, None, self._channels))
        return tf.image.resize(image, self._size) if self._size else image


def image_options(image_size: object = None, color_mode: object = None) -> dict[str, Any]:
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


#: The endings of the files that keras.utils.image_dataset_from_directory() reads.
_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
_NO_FOLDER = "`files` must be a folder that has a folder of images for each class."


class ImageFolder(Single):
    """The images of a folder that has a folder for each class, and the numbers of their classes."""

    def __init__(
        self, files: Sequence[str], sizes: Sequence[int], image_size: tuple[int, int] | None, color_mode: str,
        classes: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:  # fmt: skip
        (folder,) = files
        self.folder, self._folders = folder, _classes(folder)
        numbers = {name: number for number, name in enumerate((classes or {}).get("", self._folders))}
        self._names: list[str] = []
        labels: list[int] = []
        for name in self._folders:
            found = _images(os.path.join(folder, name))
            self._names += [os.path.join(name, one) for one in found]
            labels += [numbers.get(name, -1)] * len(found)  # a new folder is another identity
        if not self._names:
            raise ArgumentError(
                _NO_FOLDER,
                received=f"{folder}: {len(self._folders)} folders without an image",
                fix=f"Put images there: files that end in {', '.join(_ENDINGS)}.",
            )
        names = "\0".join(self._names).encode(errors="surrogateescape")
        self.identity = hashlib.sha256(names).hexdigest()
        self._labels = np.array(labels, np.int32)
        self._written = np.zeros(len(labels), np.int64)  # the write time of each image at its first reading
        self._images = Images(image_size, color_mode, *self._read(0))
        super().__init__((self._images.leaf, Leaf(self._labels.dtype)), len(labels))

    def classes(self) -> dict[str, tuple[str, ...]]:
        return {"": self._folders}

    def check(self) -> None:
        """Decode some of the images."""
        for index in some_of(len(self)):
            self._images.one(*self._read(index))

    @property
    def stored(self) -> list[Leaf]:
        return [Leaf(np.dtype(object)), self.structure[1]]

    def take(self, indices: Array) -> list[Array]:
        data = np.empty(len(indices), object)
        data[:] = [self._read(index)[0] for index in indices.tolist()]
        return [data, self._labels[indices]]

    def decoded(self, arrays: list[Array], indices: Array) -> list[Array]:
        data, labels = arrays
        return [self._images.all(data, lambda at: self._path(int(indices[at]))), labels]

    def decoded_in_graph(self, parts: list[object]) -> list[Any]:
        data, labels = parts
        return [self._images.in_graph(data), labels]

    def place(self, index: int) -> tuple[str, None]:
        return self._path(index), None

    def _path(self, index: int) -> str:
        return os.path.join(self.folder, self._names[index])

    def _read(self, index: int) -> tuple[bytes, str]:
        path = self._path(index)
        try:
            with open(path, "rb") as file:
                written = os.fstat(file.fileno()).st_mtime_ns
                data = file.read()
        except OSError as error:
            raise changed(f"{path}, which was removed ({error.strerror})") from error
        if self._written[index] not in (0, written):
            raise changed(f"{path}, which was written again")
        self._written[index] = written
        return data, path


def find_folder(files: object) -> tuple[str, ...]:
    """Return the absolute path of the folder."""
    if not isinstance(files, str | os.PathLike) or not os.path.isdir(files):
        raise ArgumentError(
            _NO_FOLDER,
            received=repr(os.fspath(files)) if isinstance(files, os.PathLike) else repr(files),
            fix='Pass files="images", where images/cats and images/dogs are folders, for example.',
        )
    return (os.path.abspath(files),)


def _classes(folder: str) -> tuple[str, ...]:
    """Return the classes in Keras's order: sorted by name."""
    try:
        with os.scandir(folder) as entries:
            return tuple(sorted(entry.name for entry in entries if entry.is_dir() and entry.name[0] != "."))
    except OSError as error:
        raise changed(f"{folder}, which was removed ({error.strerror})") from error


def _images(folder: str) -> list[str]:
    """Return the images of a class, also in its subfolders, in Keras's order."""
    found = []
    for place, _, names in sorted(os.walk(folder)):
        own = (name for name in sorted(names) if name.lower().endswith(_ENDINGS))
        found += [os.path.relpath(os.path.join(place, name), folder) for name in own]
    return found
