"""Data sets by name: this package's, those in files of a format, and those of TensorFlow Datasets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr.data.trees import leaves
from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import check_bool, check_choice, check_optional_path
from tfdistr.utils.packages import tensorflow_datasets

if TYPE_CHECKING:
    import tensorflow as tf

#: A data set whose decoded examples take at most this many bytes is held in memory.
IN_MEMORY_BYTES = 512 * 1024 * 1024

_OF_IMAGES = ("image_size", "color_mode")
_OF_TABLES = ("files", "features", "target", "fill", "matrix")
#: The formats of files, and the arguments of load_dataset() that each has.
FORMATS = {
    "parquet": (*_OF_TABLES, *_OF_IMAGES),
    "csv": (*_OF_TABLES, "delimiter"),
    "arrow": (*_OF_TABLES, *_OF_IMAGES),
    "image_folder": ("files", *_OF_IMAGES),
    "tfrecord": ("files", "features", "target"),
    "arrayrecord": ("files", "features", "target"),
}

# digits: the first 1,437 images (four fifths) are for training.
_DIGITS_SPLITS = {"all": slice(None), "train": slice(0, 1437), "test": slice(1437, None)}


@dataclass(frozen=True)
class Dataset:
    """A data set by name. Each worker opens it separately. ``load_dataset()`` makes one.

    Attributes:
        name: "digits", or the name of a TensorFlow data set.
        split: The part of the data set.
        data_dir: Folder of the TensorFlow data sets; None for the default one.
        supervised: Whether examples are pairs (input, label); otherwise dictionaries of all features.
        columns_of_inputs: The names of the columns of ``x``; None if the data is no table.
        levels: The names of the classes of each target that has some, by its path in ``y``.
    """

    name: str
    split: str = "train"
    data_dir: str | None = None
    supervised: bool = True
    columns_of_inputs: tuple[str, ...] | None = None
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def class_names(self) -> Any:
        """The names of the classes of ``y``, in the order of their numbers; by target, if there are several.

        Targets of text and folders of images have them. It is empty without them.
        """
        if not self.levels or "" in self.levels:
            return self.levels.get("", ())
        return {path[2:-2]: names for path, names in self.levels.items()}

    @property
    def identity(self) -> str:
        """Return the identity of the data, which is the same on all machines and in both languages."""
        return f"the data set {self.name!r}, split {self.split!r}"

    def arrays(self) -> Any:
        """Return all examples as NumPy arrays: ``(x, y)``, or a dictionary if not ``supervised``.

        Raises:
            ArgumentError: The examples have unequal shapes, or are too large for arrays.

        Example:
            >>> x, y = tfdistr.load_dataset("digits", "test").arrays()
            >>> x.shape, y.shape
            ((360, 8, 8, 1), (360,))
        """
        if self.name == "digits":
            with np.load(Path(__file__).parent / "digits.npz") as file:
                part = _DIGITS_SPLITS[self.split]
                image, label = file["image"][part], file["label"][part]
            return (image, label) if self.supervised else {"image": image, "label": label}
        if not self.fits_in_memory():
            raise ArgumentError(
                "Cannot load the data set as arrays: it needs equally shaped examples, 512 MiB at most.",
                received=f"{self.name!r}, split {self.split!r}",
                fix="Use .dataset(), which reads it example by example.",
            )
        import tensorflow_datasets as tfds

        return tfds.as_numpy(self._read(batch_size=-1))

    def dataset(self) -> tf.data.Dataset:
        """Return the examples, not batched, in a fixed order, as a ``tf.data.Dataset``."""
        import tensorflow as tf

        if self.name == "digits":
            return tf.data.Dataset.from_tensor_slices(self.arrays())
        return self._read()

    def fits_in_memory(self) -> bool:
        """Return whether all decoded examples fit into ``IN_MEMORY_BYTES``; False if a size is not known."""
        info = self.builder().info
        sizes: list[int] = []
        for _, feature in leaves(info.features.get_tensor_info()):
            kind = np.dtype(feature.np_dtype)
            if None in feature.shape or kind.hasobject:  # text has no fixed size
                return False
            sizes.append(int(np.prod(feature.shape, dtype=np.int64)) * kind.itemsize)
        size = int(info.splits[self.split].num_examples) * sum(sizes)
        return size <= IN_MEMORY_BYTES

    def decode(self, record: tf.Tensor) -> Any:
        """Decode a record of the files, a scalar string tensor, to an example as in ``dataset()``."""
        import tensorflow as tf

        info = self.builder().info
        features = info.features.deserialize_example(record)
        if not self.supervised:
            return features
        return tf.nest.map_structure(lambda key: features[key], info.supervised_keys)

    def builder(self) -> Any:
        """Return the TensorFlow Datasets builder that reads the data set."""
        import tensorflow_datasets as tfds

        return tfds.builder(self.name, data_dir=self.data_dir)

    def _read(self, **options: object) -> Any:
        import tensorflow_datasets as tfds

        # One file after the other: the order of the examples must be the same on every worker.
        config = tfds.ReadConfig(interleave_cycle_length=1, try_autocache=False)
        return self.builder().as_dataset(
            split=self.split, as_supervised=self.supervised, read_config=config, **options
        )


def load_dataset(
    name: str,
    split: str = "train",
    *,
    data_dir: str | None = None,
    supervised: bool = True,
    files: object = None,
    features: object = None,
    target: object = None,
    fill: object = None,
    matrix: bool | None = None,
    delimiter: str | None = None,
    image_size: object = None,
    color_mode: str | None = None,
) -> Dataset:
    """Describe a data set by name.

    The description is for ``distributed_fit()``. Every worker opens the data set itself, and reads the
    examples that it uses.

    Args:
        name: "digits" (1,797 images of 8 × 8 pixels, part of this package); or the format of the files that
            ``files`` names: "parquet", "csv", "arrow", "image_folder", "tfrecord" or "arrayrecord"; or the
            name of a data set of TensorFlow Datasets that is prepared in ``data_dir``.
        split: "train", "test" or "all" of "digits"; any split or slice that TensorFlow Datasets
            knows, such as "train[:10%]", of other data sets. Files have no splits.
        data_dir: Folder of the prepared data sets; by default the folder of TensorFlow Datasets.
        supervised: Whether examples are pairs (input, label); otherwise they are dictionaries of all
            features. Of files, ``target`` says this.
        files: A path, a pattern such as "part-*.parquet", a folder, or a list of them. The files of a
            pattern and of a folder are sorted by name. All workers must have them at the same path. Of
            "image_folder": a folder that has a folder of images for each class.
        features: Of tables: names of the columns of ``x``; by default all but ``target``. If all are numbers,
            ``x`` is a matrix, as for a data frame. One column of images is ``x`` itself. Otherwise ``x`` is
            a dictionary of columns. Of records: a dictionary that has for each feature of a
            ``tf.train.Example`` a ``tf.io.FixedLenFeature``, a dictionary with "shape", "dtype" ("float32",
            "int64" or "string") and perhaps "default", or only the dtype.
        target: Name of the column or feature of ``y``, or a list of names; None for examples without ``y``.
            Text in a column is the number of its class, from 0 in sorted order; see ``class_names``.
        fill: Of tables: the value in the place of missing values, or a dictionary with a value for each
            column that may have some. By default a missing value is an error. NaN is a number.
        matrix: Of tables: whether several columns become one array; by default only if all are numbers.
        delimiter: Of "csv": the character between two values; by default ",".
        image_size: Of images: height and width to which they are resized, as
            ``keras.utils.image_dataset_from_directory()`` does, to float32 numbers from 0 to 255. By default
            images have the type uint8, and must have one size. Images are the files of "image_folder", and
            columns of "parquet" and "arrow" as Hugging Face's datasets have them.
        color_mode: Of images: "rgb" (the default), "grayscale" or "rgba".

    Returns:
        A ``Dataset`` with ``.dataset()`` (a ``tf.data.Dataset``) and ``.arrays()``.

    Raises:
        ArgumentError: There is no such data set, split, file or column; or a file is damaged, its columns
            have other types than those of the first file, or a value is missing; or a package is missing
            that reads the format.

    Example:
        >>> digits = tfdistr.load_dataset("digits")
        >>> digits.arrays()[0].shape
        (1437, 8, 8, 1)
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            "`name` must be the name of a data set.",
            received=repr(name),
            fix='Pass name="digits", for example.',
        )
    if not isinstance(split, str):
        raise ArgumentError(
            "`split` must be the name of a split.",
            received=repr(split),
            fix='Pass split="train", for example.',
        )
    check_bool("supervised", supervised)
    check_optional_path("data_dir", data_dir)
    of_files = {
        "files": files, "features": features, "target": target, "fill": fill, "matrix": matrix,
        "delimiter": delimiter, "image_size": image_size, "color_mode": color_mode,
    }  # fmt: skip
    given = {key: value for key, value in of_files.items() if value is not None}
    others = {"split": split != "train", "data_dir": data_dir is not None, "supervised": not supervised}
    if name in FORMATS:
        _refuse_others(name, [*(key for key, value in others.items() if value), *given], FORMATS[name])
        from tfdistr.data.readers.described import describe_files

        return describe_files(name, **given)
    _refuse_others(name, list(given), tuple(others))
    if name == "digits":
        check_choice("split", split, tuple(_DIGITS_SPLITS))
        return Dataset(name, split, None, supervised)
    described = Dataset(name, split, None if data_dir is None else str(data_dir), supervised)
    _check_prepared(described)
    return described


def _refuse_others(name: str, given: list[str], taken: tuple[str, ...]) -> None:
    """Refuse an argument that belongs to another kind of data set."""
    found = next((argument for argument in given if argument not in taken), None)
    if found is not None:
        raise ArgumentError(
            f"The data set {name!r} has no argument `{found}`.",
            received=f"`{found}`",
            fix=f"Leave it out. The arguments of {name!r} are {', '.join(f'`{one}`' for one in taken)}.",
        )


def _check_prepared(described: Dataset) -> None:
    """Raise the error for a missing data set or split here, and not in every worker."""
    tfds = tensorflow_datasets()
    where = described.data_dir or "the default folder of TensorFlow Datasets"
    try:
        info = described.builder().info
        splits = info.splits
    except (tfds.core.DatasetNotFoundError, ValueError, OSError) as error:
        raise ArgumentError(
            "`name` must be 'digits' or a data set of TensorFlow Datasets.",
            received=f"{described.name!r} ({str(error).splitlines()[0]})",
            fix="Check the name, and that `data_dir` holds it.",
        ) from error
    if not splits:
        raise ArgumentError(
            "The data set is not prepared.",
            received=f"{described.name!r}, which is not in {where}",
            fix=f"Run tfds.builder({described.name!r}).download_and_prepare(), or pass `data_dir`.",
        )
    try:
        splits[described.split]
    except ValueError as error:
        raise ArgumentError(
            f"`split` must be one of {', '.join(map(repr, splits))}, or a part of it such as 'train[:10%]'.",
            received=f"{described.split!r} ({str(error).splitlines()[0]})",
            fix=f'Use split="{next(iter(splits))}".',
        ) from error
    if described.supervised and info.supervised_keys is None:
        raise ArgumentError(
            f"{described.name!r} does not say which of its features are input and label.",
            received="supervised=True",
            fix="Pass supervised=False, and make pairs of the dictionaries in a function `x`.",
        )
