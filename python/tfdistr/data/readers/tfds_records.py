"""Batches of a TensorFlow Datasets data set by index: only the records of a batch are read and decoded."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr.data.datasets import Dataset
from tfdistr.data.pipeline.host_cache import HostMemory
from tfdistr.data.pipeline.index_batches import Indexed
from tfdistr.data.pipeline.random_access import Specs, one_by_one, specs_of
from tfdistr.data.readers.record_files import Records, open_records

log = logging.getLogger("tfdistr")

Decode = Callable[[tf.Tensor], Any]


def of_prepared(described: Dataset, memory: HostMemory) -> Indexed | None:
    """Return the examples of a prepared data set; None if its files can only be read in order.

    If the data set fits into memory, decoded examples stay in ``memory``.
    """
    if described.name == "digits":
        return None
    records, how = open_records(described.builder(), described.split)
    log.info("load_dataset(%r, %r): %s", described.name, described.split, how)
    if records is None:
        return None
    specs = specs_of(tf.data.Dataset.from_tensors("").map(described.decode))
    if described.fits_in_memory():
        kept = Kept(records, described.decode, specs, memory)
        return Indexed(len(records), kept.batch, kept.take)

    def batch(indices: tf.Tensor) -> Any:
        return one_by_one(_read(records, indices), described.decode, specs)

    return Indexed(len(records), batch, None, parallel=True)


class Kept:
    """Decoded examples of equal shape that stay in memory. Each is decoded when it is first needed.

    Several workers may share them: a worker that decodes an example writes it, then marks it as present. Two
    workers may do this at the same time, because they write the same values.

    Args:
        decode: Makes an example from a record. The same record must always give the same example.
    """

    def __init__(self, records: Records, decode: Decode, specs: Specs, memory: HostMemory) -> None:
        self._records, self._decode, self._specs, self._memory = records, decode, specs, memory
        leaves = tf.nest.flatten(specs.example)
        # Floating-point numbers have Keras's type, as they do in arrays.
        floatx = keras.config.floatx()
        kinds = [np.dtype(floatx if s.dtype.is_floating else s.dtype.as_numpy_dtype) for s in leaves]
        self._types = [tf.as_dtype(kind) for kind in kinds]
        examples = [((len(records), *s.shape), kind) for s, kind in zip(leaves, kinds, strict=True)]
        self._marks, *self._arrays = memory.arrays([((len(records),), np.dtype(bool)), *examples])
        # The marks that this worker has read: it can read their examples without the lock.
        self._present = np.zeros(len(records), bool)
        self._decoded = tf.function(self._decode_all, input_signature=[tf.TensorSpec([None], tf.int64)])

    def batch(self, indices: tf.Tensor) -> Any:
        """Return the batch of an int64 vector of indices."""
        missing, *kept = tf.numpy_function(self._look, [indices], [tf.int64, *self._types])
        parts = tf.cond(tf.size(missing) > 0, lambda: self._fill(indices, missing), lambda: kept)
        for part, array in zip(parts, self._arrays, strict=True):
            part.set_shape((None, *array.shape[1:]))
        return self._packed(parts)

    def take(self, indices: np.ndarray[Any, Any]) -> Any:
        """Return the batch of a NumPy vector of indices, in NumPy arrays."""
        missing = self._missing(indices)
        if missing.size:
            with tf.device("CPU:0"):
                decoded = self._decoded(tf.constant(missing))
            self._keep(missing, [part.numpy() for part in decoded])
        return self._packed(self._rows(indices))

    def _packed(self, parts: Any) -> Any:
        return tf.nest.pack_sequence_as(self._specs.example, parts)

    def _rows(self, indices: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        return [array.take(indices, axis=0) for array in self._arrays]

    def _missing(self, indices: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the indices of the examples that are not decoded."""
        if not self._present[indices].all():
            with self._memory.lock():
                self._present |= self._marks
        missing: np.ndarray[Any, Any] = indices[~self._present[indices]]
        return missing

    def _keep(self, indices: np.ndarray[Any, Any], parts: Sequence[np.ndarray[Any, Any]]) -> None:
        for array, part in zip(self._arrays, parts, strict=True):
            array[indices] = part
        with self._memory.lock():
            self._marks[indices] = True

    def _look(self, indices: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """Return the indices of the examples that are not decoded. If there are none, also return all."""
        missing = self._missing(indices)
        return [missing, *self._rows(indices[:0] if missing.size else indices)]

    def _fill(self, indices: tf.Tensor, missing: tf.Tensor) -> list[tf.Tensor]:
        def keep(
            indices: np.ndarray[Any, Any], missing: np.ndarray[Any, Any], *parts: np.ndarray[Any, Any]
        ) -> list[np.ndarray[Any, Any]]:
            self._keep(missing, parts)
            return self._rows(indices)

        return list(tf.numpy_function(keep, [indices, missing, *self._decode_all(missing)], self._types))

    def _decode_all(self, indices: tf.Tensor) -> list[tf.Tensor]:
        processors = len(os.sched_getaffinity(0))
        decoded = one_by_one(_read(self._records, indices), self._decode, self._specs, processors)
        return list(tf.nest.flatten(decoded))


def _read(records: Records, indices: tf.Tensor) -> tf.Tensor:
    def read(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array([*records.__getitems__(numbers.tolist()), b""], object)[:-1]

    found = tf.numpy_function(read, [indices], tf.string, stateful=False)
    found.set_shape([None])
    return found
