"""Examples of a TensorFlow Datasets data set by index: only the records of a batch are read and decoded."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from tfdistr.data.datasets import Dataset
from tfdistr.data.pipeline.file_examples import of_blocks
from tfdistr.data.pipeline.host_cache import HostMemory
from tfdistr.data.pipeline.index_batches import Indexed
from tfdistr.data.pipeline.random_access import Specs, one_by_one, specs_of
from tfdistr.data.readers.blocks import Leaf, Single
from tfdistr.data.readers.record_files import TFRecordFiles
from tfdistr.data.trees import Array

log = logging.getLogger("tfdistr")

Decode = Callable[[tf.Tensor], object]


class Records(Protocol):
    """Records that are read by index."""

    def __len__(self) -> int: ...
    def __getitems__(self, indices: Sequence[int], /) -> Sequence[bytes]: ...


def of_prepared(described: Dataset, memory: HostMemory) -> Indexed | None:
    """Return the examples of a prepared data set; None if its files can only be read in order."""
    records, how = open_records(described.builder(), described.split)
    log.info("load_dataset(%r, %r): %s", described.name, described.split, how)
    if records is None:
        return None
    specs = specs_of(tf.data.Dataset.from_tensors("").map(described.decode))
    if described.fits_in_memory():
        return of_blocks(_Prepared(records, described.decode, specs), described.name, memory, in_memory=True)

    def batch(indices: tf.Tensor) -> Any:
        return one_by_one(_read(records, indices), described.decode, specs)

    return Indexed(len(records), batch, None, parallel=True)


class _Prepared(Single):
    """Examples of equal shape. ``decode`` must always make the same example from a record."""

    def __init__(self, records: Records, decode: Decode, specs: Specs) -> None:
        def leaf(spec: tf.TensorSpec) -> Leaf:
            # Floating-point numbers have Keras's type, as they do in arrays.
            kind = keras.config.floatx() if spec.dtype.is_floating else spec.dtype.as_numpy_dtype
            return Leaf(np.dtype(kind), tuple(spec.shape))

        processors = len(os.sched_getaffinity(0))

        def decoded(indices: tf.Tensor) -> list[tf.Tensor]:
            return list(tf.nest.flatten(one_by_one(_read(records, indices), decode, specs, processors)))

        self._decoded = tf.function(decoded, input_signature=[tf.TensorSpec([None], tf.int64)])
        made = tf.nest.map_structure(leaf, specs.example)
        super().__init__(made if isinstance(made, tuple) else (made,), len(records))

    def take(self, indices: Array) -> list[Array]:
        with tf.device("CPU:0"):
            parts = self._decoded(tf.constant(indices))
        return [part.numpy().astype(leaf.kind) for part, leaf in zip(parts, self.stored, strict=True)]


def _read(records: Records, indices: tf.Tensor) -> tf.Tensor:
    def read(numbers: Array) -> Array:
        return np.array([*records.__getitems__(numbers.tolist()), b""], object)[:-1]

    found = tf.numpy_function(read, [indices], tf.string, stateful=False)
    found.set_shape([None])
    return found


class TFRecords:
    """Records of a split of TFRecord files. The split has some consecutive records of each file.

    Args:
        parts: For each part: the number of the file, of its first record in the file, and of its records.
    """

    def __init__(self, files: TFRecordFiles, parts: Sequence[tuple[int, int, int]]) -> None:
        self._files = files
        of_parts = np.array(parts, np.int64).reshape(-1, 3)
        self._of_file, self._first, counts = of_parts.T
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitems__(self, indices: Sequence[int]) -> list[bytes]:
        """Return the records with these indices."""
        parts = np.searchsorted(self._ends, indices, side="right")
        numbers = np.asarray(indices, np.int64) - self._starts[parts] + self._first[parts]
        return self._files.read(self._of_file[parts], numbers)


def open_records(builder: Any, split: str) -> tuple[Records | None, str]:
    """Open the records of a split, and describe how they are read; None if this is only possible in order."""
    info = builder.info
    kind = info.file_format.value if info.file_format else "unknown"
    if kind == "array_record":
        import tensorflow_datasets as tfds

        raw = tfds.decode.DeserializeMethod.RAW_BYTES
        return builder.as_data_source(split, deserialize_method=raw), "array_record files, by index"
    if kind != "tfrecord":
        return None, f"{kind} files, in order"
    instructions = info.splits[split].file_instructions
    counts = {os.fspath(one.filename): one.examples_in_shard for one in instructions}
    names = list(counts)
    if not all(map(os.path.isfile, names)):
        return None, "TFRecord files that are not on this machine, in order"
    parts = [(names.index(os.fspath(one.filename)), one.skip, one.take) for one in instructions]
    how = f"{len(names)} TFRecord {'file' if len(names) == 1 else 'files'}, by index"
    return TFRecords(TFRecordFiles(names, list(counts.values())), parts), how
