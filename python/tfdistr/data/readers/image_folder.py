"""Images in a folder for each class."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfdistr.data.readers.blocks import Array, Leaf, Single
from tfdistr.data.readers.images import Images
from tfdistr.errors import ArgumentError

#: The endings of the files that keras.utils.image_dataset_from_directory() reads.
_ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".png")
#: Number of images that are checked before a job starts.
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
        self._written = np.zeros(len(labels), np.int64)  # the write time of each image at its first reading
        self._images = Images(image_size, color_mode, *self._read(0))
        super().__init__((self._images.leaf, Leaf(self._labels.dtype)), len(labels))

    @property
    def identity(self) -> str:
        """The names of the images."""
        return hashlib.sha256("\0".join(self._names).encode(errors="surrogateescape")).hexdigest()

    def check(self) -> None:
        """Decode some of the images."""
        for index in np.linspace(0, len(self) - 1, min(_LOOKED_AT, len(self)), dtype=int).tolist():
            self._images.one(*self._read(index))

    @property
    def encoded(self) -> Single:
        """The images as they are in their files."""
        return _EncodedFolder(self)

    def take(self, indices: Array) -> list[Array]:
        """Decode images."""
        return self.decoded(self.read_files(indices), indices)

    def decoded(self, arrays: list[Array], indices: Array) -> list[Array]:
        """Decode the contents of files."""
        data, labels = arrays
        return [self._images.all(data, lambda at: self._path(int(indices[at]))), labels]

    def decoded_in_graph(self, parts: list[Any]) -> list[Any]:
        """Decode the contents of files in a graph."""
        data, labels = parts
        return [self._images.in_graph(data), labels]

    def read_files(self, indices: Array) -> list[Array]:
        """Return the contents of files, and the numbers of the classes."""
        data = np.empty(len(indices), object)
        data[:] = [self._read(index)[0] for index in indices.tolist()]
        return [data, self._labels[indices]]

    def _path(self, index: int) -> str:
        return os.path.join(self.folder, self._names[index])

    def _read(self, index: int) -> tuple[bytes, str]:
        path = self._path(index)
        try:
            with open(path, "rb") as file:
                written = os.fstat(file.fileno()).st_mtime_ns
                data = file.read()
        except OSError as error:
            raise _changed(f"{path}, which was removed ({error.strerror})") from error
        if self._written[index] not in (0, written):
            raise _changed(f"{path}, which was written again")
        self._written[index] = written
        return data, path


class _EncodedFolder(Single):
    def __init__(self, source: ImageFolder) -> None:
        self._source = source
        super().__init__((Leaf(np.dtype(object)), source.structure[1]), len(source))

    def take(self, indices: Array) -> list[Array]:
        return self._source.read_files(indices)


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
    """Return the classes in Keras's order: sorted by name."""
    try:
        with os.scandir(folder) as entries:
            return tuple(sorted(entry.name for entry in entries if entry.is_dir() and entry.name[0] != "."))
    except OSError as error:
        raise _changed(f"{folder}, which was removed ({error.strerror})") from error


def _images(folder: str) -> list[str]:
    """Return the images of a class, also in its subfolders, in Keras's order."""
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
        "The files of a data set have changed since it was described.",
        received=received,
        fix="Write other files beside them, and restart.",
    )
