"""Batches of a data set of TensorFlow Datasets by index: only the records of a batch are read and decoded."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr.data.lookup import Specs, one_by_one, specs_of
from tfdistr.datasets import Dataset
from tfdistr.datasets.records import Records, open_records

log = logging.getLogger("tfdistr")

Decode = Callable[[tf.Tensor], Any]


@dataclass(frozen=True)
class Prepared:
    """A prepared data set by index.

    Attributes:
        examples: Number of examples.
        batch: Gives the batch of an int64 vector of indices.
        parallel: Whether several batches may be made at a time.
    """

    examples: int
    batch: Callable[[tf.Tensor], Any]
    parallel: bool


def prepared_batches(described: Dataset) -> Prepared | None:
    """The batches of a prepared data set by index; None if its files can only be read in order.

    What fits into memory is kept there once it is decoded.
    """
    if described.name == "digits":
        return None
    records, how = open_records(described.builder(), described.split)
    log.info("load_dataset(%r, %r): %s", described.name, described.split, how)
    if records is None:
        return None
    specs = specs_of(tf.data.Dataset.from_tensors("").map(described.decode))
    if described.fits_in_memory():
        return Prepared(len(records), Kept(records, described.decode, specs).batch, parallel=False)

    def batch(indices: tf.Tensor) -> Any:
        return one_by_one(_read(records, indices), described.decode, specs)

    return Prepared(len(records), batch, parallel=True)


class Kept:
    """Decoded examples of equal shape that stay in memory; each is decoded when it is asked for first.

    Args:
        records: The records of all examples.
        decode: Makes an example of a record.
        specs: The types of the examples and of batches of them.
    """

    def __init__(self, records: Records, decode: Decode, specs: Specs) -> None:
        self._records, self._decode, self._specs = records, decode, specs
        leaves = tf.nest.flatten(specs.example)
        # Floating-point numbers in Keras's type, as those of arrays. Memory is taken as it is filled.
        floatx = keras.config.floatx()
        kinds = [np.dtype(floatx if s.dtype.is_floating else s.dtype.as_numpy_dtype) for s in leaves]
        self._types = [tf.as_dtype(kind) for kind in kinds]
        self._arrays = [np.empty((len(records), *s.shape), k) for s, k in zip(leaves, kinds, strict=True)]
        self._known = np.zeros(len(records), bool)

    def batch(self, indices: tf.Tensor) -> Any:
        """The batch of an int64 vector of indices."""
        missing, *kept = tf.numpy_function(self._look, [indices], [tf.int64, *self._types])
        parts = tf.cond(tf.size(missing) > 0, lambda: self._fill(indices, missing), lambda: kept)
        for part, array in zip(parts, self._arrays, strict=True):
            part.set_shape((None, *array.shape[1:]))
        examples = tf.nest.pack_sequence_as(self._specs.example, parts)
        return examples if isinstance(examples, tuple) else (examples,)

    def _look(self, indices: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """Which of the examples are not decoded; and all of them if there is none."""
        missing = indices[~self._known[indices]]
        return [missing, *(array[indices[:0] if missing.size else indices] for array in self._arrays)]

    def _fill(self, indices: tf.Tensor, missing: tf.Tensor) -> list[tf.Tensor]:
        processors = len(os.sched_getaffinity(0))
        decoded = one_by_one(_read(self._records, missing), self._decode, self._specs, processors)
        parts = tf.nest.flatten(decoded)
        return list(tf.numpy_function(self._keep, [indices, missing, *parts], self._types))

    def _keep(
        self, indices: np.ndarray[Any, Any], missing: np.ndarray[Any, Any], *parts: np.ndarray[Any, Any]
    ) -> list[np.ndarray[Any, Any]]:
        for array, part in zip(self._arrays, parts, strict=True):
            array[missing] = part
        self._known[missing] = True
        return [array[indices] for array in self._arrays]


def _read(records: Records, indices: tf.Tensor) -> tf.Tensor:
    def read(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array([*records.__getitems__(numbers.tolist()), b""], object)[:-1]

    found = tf.numpy_function(read, [indices], tf.string, stateful=False)
    found.set_shape([None])
    return found
