"""The comparison of what must be alike on all workers: trained weights and the state of optimizers."""

from __future__ import annotations

import logging
import weakref
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import JobMismatchError
from tfdistr.strategies.exact.replica import OneReplica

log = logging.getLogger("tfdistr")

# Words in a row of the checksum, which is that of the sum of all rows: sums are faster than checksums.
_ROW = 1024


class Disagreement(NamedTuple):
    """The first variable whose values differ from the chief's.

    Attributes:
        size: The largest difference, as a part of the largest value.
        is_rounding: Whether all differences are so small that they come from rounding.
    """

    variable: str
    worker: int
    size: float
    is_rounding: bool


class Agreement:
    """The comparison of the workers' models during one training.

    What a step computes of a worker's own rows, such as moving averages of BatchNormalization, is not
    compared. The comparison of checksums takes less than a millisecond for 4 MB.
    """

    def __init__(self, extended: OneReplica, model: keras.Model, alone: Sequence[str]) -> None:
        self._extended = extended
        self._model = weakref.ref(model)  # it outlives the training
        self._alone = alone
        self._has_warned = False

    def checksum(self) -> int:
        """Return a number that is equal on workers with the same values."""
        total = 0
        for _, variable in self._variables():
            total = _checksum(_bytes(variable.read_value()), total)
        return total

    def check(self, checksums: Sequence[int], when: str) -> None:
        """Compare the values if the checksums of the workers differ. All workers must call it."""
        if all(each == checksums[0] for each in checksums):
            return
        found = self._first_difference()
        if found is None:  # 0.0 and -0.0, or other bits of NaN
            return
        if not found.is_rounding or self._extended.virtual:
            raise self._error(found, when)
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "The weights of the workers differ by rounding (%s of worker %d by %.1g times its largest "
                "value, %s), because their processors or their TensorFlow kernels differ.",
                found.variable, found.worker, found.size, when,
            )  # fmt: skip

    def _variables(self) -> list[tuple[str, tf.Variable]]:
        model = self._model()
        assert model is not None  # it is in training
        found = [*model.trainable_variables]
        for optimizer in tf_internals.optimizers_of(model):
            found += optimizer.variables
        unique = {id(variable): variable for variable in found}.values()
        return [(v.path, self._extended.local_variable(v.value)) for v in unique if not _is_local(v.value)]

    def _first_difference(self) -> Disagreement | None:
        """Compare this worker's values with the chief's, variable by variable."""
        collectives = self._extended.collectives
        assert collectives is not None
        named = self._variables()
        own = np.array([_checksum(_bytes(v.read_value()), 0) for _, v in named], np.int64)
        each = collectives.all_gather(tf.constant(own[np.newaxis]), 0).numpy()
        first: Disagreement | None = None
        is_rounding = True
        for number in np.flatnonzero((each != each[0]).any(0)):
            name, variable = named[number]
            value = variable.read_value()
            (chiefs,) = collectives.from_chief([value])
            size = _difference(value.numpy(), chiefs.numpy())
            sizes = collectives.all_gather(tf.constant([size], tf.float64), 0).numpy()
            worker = int(sizes.argmax())
            is_rounding = is_rounding and bool(sizes[worker] <= _rounding(variable.dtype))
            if sizes[worker] and (first is None or (first.is_rounding and not is_rounding)):
                first = Disagreement(name, worker, float(sizes[worker]), is_rounding)
        return first

    def _error(self, found: Disagreement, when: str) -> JobMismatchError:
        alone = f" Not all workers run these callbacks: {', '.join(self._alone)}." if self._alone else ""
        return JobMismatchError(
            "The workers no longer have the same model.",
            received=f"{found.variable} of worker {found.worker}, which differs from that of worker 0 by "
            f"{found.size:.2g} times its largest value, {when}",
            fix="Change weights and learning rates on every worker alike: without chief_only(), "
            f"`if tfdistr.is_chief():`, and random numbers that have no seed.{alone} If no callback changes "
            "them, check the memory of that machine.",
        )


def check_agreement(extended: OneReplica | None, when: str) -> None:
    """Check that all workers have the same model in the running training. All workers must call it."""
    checks = extended.checks if extended and extended.collectives is not None else None
    if checks is not None and checks.agreement is not None:
        agreement: Agreement = checks.agreement
        table = checks.calls.meet("a checkpoint", agreement.checksum())
        agreement.check(table[:, 0].tolist(), when)


def _is_local(value: Any) -> bool:
    """Return whether a variable has a value of its own on each worker, as those of metrics."""
    distributed = isinstance(value, tf.distribute.DistributedValues)
    return distributed and value.synchronization == tf.VariableSynchronization.ON_READ


def _bytes(value: tf.Tensor) -> np.ndarray:
    """Return the bytes of a tensor, without a copy where Python knows its type."""
    try:
        return np.frombuffer(memoryview(value), np.uint8)
    except ValueError:
        return np.asarray(value).reshape(-1).view(np.uint8)


def _checksum(content: np.ndarray, start: int) -> int:
    whole = content.size // (8 * _ROW) * 8 * _ROW
    rows = content[:whole].view(np.uint64).reshape(-1, _ROW)
    return zlib.crc32(content[whole:].data, zlib.crc32(np.add.reduce(rows).data, start))


def _difference(own: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference as a part of the largest value; infinite if only one is finite."""
    a, b = np.asarray(own, np.float64), np.asarray(other, np.float64)
    unlike = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not unlike.any():
        return 0.0
    a, b = a[unlike], b[unlike]
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return np.inf
    finite = np.abs(np.asarray(other, np.float64))
    largest = max(float(finite[np.isfinite(finite)].max()), float(np.abs(a).max()))
    return float(np.abs(a - b).max()) / largest


def _rounding(dtype: tf.DType) -> float:
    """Return the largest difference of rounding, which may have grown over many steps; 0 for integers."""
    if not dtype.is_floating:
        return 0.0
    return float(np.sqrt(float(np.spacing(np.ones((), dtype.as_numpy_dtype)))))
