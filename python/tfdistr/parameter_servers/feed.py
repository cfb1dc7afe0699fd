"""The batches of a job: each worker reads them itself for the steps that the chief sends.

The chief's graphs run on the server of the worker's process. They call Python functions of that process by
name. So data functions, generators and arrays work as everywhere, and no example goes through the chief.
"""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import keras
import numpy as np
import tensorflow as tf

from tfdistr.data.order.shard import take_rows
from tfdistr.data.pipeline.index_batches import Batches
from tfdistr.data.pipeline.worker_data import WorkerData, make_data
from tfdistr.errors import ArgumentError
from tfdistr.tf_internals.remote_calls import call, offer
from tfdistr.training.job import Job
from tfdistr.utils.function_files import FunctionByName
from tfdistr.utils.pickles import load_value, save_value

TRAINING, VALIDATION = 0, 1

#: The most bytes of a job for workers that do not share the run directory.
LARGEST_JOB = 2**30
_HAS, _LOAD, _BATCH = "tfdistr/has_job", "tfdistr/load_job", "tfdistr/batch"


# --- On the chief


def look_at(job: Job, kind: int) -> WorkerData:
    """Return the data of the job on the chief, with a known number of steps."""
    # For several workers, ``make_data`` counts the examples if that is necessary.
    steps = job.steps_per_epoch if kind == TRAINING else job.validation_steps
    return _data(job, kind, steps, num_workers=2)


def describe_job(job: Job, run_dir: Path | None, steps: list[int | None]) -> bytes:
    """Describe a job for workers, which read its batches."""
    header = {"steps": steps, "run_dir": None if run_dir is None else str(run_dir)}
    parts = []
    if run_dir is None:
        with tempfile.TemporaryDirectory() as folder:
            save_value(attrs.evolve(job, model=_no_model, callbacks=None), folder, "feed")
            parts = [Path(folder, name).read_bytes() for name in ("feed.pkl", "feed.buffers")]
        if sum(map(len, parts)) > LARGEST_JOB:
            raise ArgumentError(
                "Data that is sent to workers on other machines must be at most 1 GiB.",
                received=f"{sum(map(len, parts))} bytes",
                fix="Pass a function that reads the data; each worker calls it.",
            )
    header["sizes"] = [len(part) for part in parts]
    return b"\n".join([json.dumps(header).encode(), b"".join(parts)])


class WorkerBatch:
    """A batch in the graph of a step.

    Attributes:
        data: The rows of this share, in the structure that Keras takes.
        rows: Number of rows of this share, a float32 scalar.
        all_rows: Number of rows of the whole batch.
        worker: Index of the worker that has read the batch; float32, as tensors of one type travel together.
    """

    def __init__(self, kind: int, place: tf.Tensor, job: tf.Variable, name: tf.Tensor, spec: object) -> None:
        (has,) = call(_HAS, [name], [tf.bool])
        has.set_shape([])

        def load() -> tf.Tensor:
            (loaded,) = call(_LOAD, [name, job.read_value()], [tf.bool])
            loaded.set_shape([])
            return loaded

        loaded = tf.cond(has, lambda: True, load)
        with tf.control_dependencies([loaded]):
            parts = tf.nest.flatten(spec, expand_composites=True)
            types = [tf.float32, tf.float32, tf.float32, *(part.dtype for part in parts)]
            self.rows, self.all_rows, self.worker, *values = call(_BATCH, [tf.constant(kind), place], types)
        for scalar in (self.rows, self.all_rows, self.worker):
            scalar.set_shape([])
        for value, part in zip(values, parts, strict=True):
            value.set_shape(part.shape)
        self.data = tf.nest.pack_sequence_as(spec, values, expand_composites=True)


# --- On a worker


def offer_feed(worker: int) -> None:
    """Let the chief's graphs read batches on this worker."""
    feeds: dict[bytes, _Feed] = {}
    lock = threading.Lock()

    def load(name: bytes, described: bytes) -> Any:
        with lock:
            if name not in feeds:
                feeds.clear()  # of an earlier job
                feeds[name] = _Feed(described)
        return np.True_

    def batch(kind: Any, place: Any) -> list[Any]:
        (feed,) = feeds.values()
        rows, all_rows, parts = feed.batch(int(kind), *map(int, place))
        return [np.float32(rows), np.float32(all_rows), np.float32(worker), *parts]

    # Names arrive as NumPy arrays without dimensions, or as bytes.
    offer(_HAS, lambda name: np.bool_(_bytes(name) in feeds))
    offer(_LOAD, lambda name, described: load(_bytes(name), _bytes(described)))
    offer(_BATCH, batch)


class _Feed:
    """The reader of the batches of one job."""

    def __init__(self, described: bytes) -> None:
        header, _, rest = described.partition(b"\n")
        fields = json.loads(header)
        if fields["run_dir"] is None:
            with tempfile.TemporaryDirectory() as folder:  # mapped memory outlives the name of its file
                size, _ = fields["sizes"]
                Path(folder, "feed.pkl").write_bytes(rest[:size])
                Path(folder, "feed.buffers").write_bytes(rest[size:])
                job = load_value(folder, "feed")
        else:
            job = load_value(fields["run_dir"], "job")
        job.settings.use()
        keras.utils.set_random_seed(job.seed)  # the order of a shuffle depends on it, too
        self._readers = {
            kind: _reader(job, kind, steps)
            for kind, steps in enumerate(fields["steps"])
            if (job.data, job.validation)[kind] is not None
        }
        self._lock = threading.Lock()

    def batch(self, kind: int, step: int, shares: int, share: int) -> tuple[int, int, list[Any]]:
        """Return the numbers of rows of a share and of its batch, and the arrays of the share."""
        with self._lock:
            rows, data = self._readers[kind].batch(step, shares, share)
        parts = [_array(part) for part in tf.nest.flatten(data, expand_composites=True)]
        return _rows(data), rows, parts


class _ByIndex:
    """Batches with random access: only the examples of the share are read."""

    def __init__(self, arrays: Batches) -> None:
        self._arrays = arrays
        self._shares: dict[tuple[int, int], Batches] = {}

    def batch(self, step: int, shares: int, share: int) -> tuple[int, Any]:
        if (shares, share) not in self._shares:
            self._shares[shares, share] = self._arrays.share(shares, share)
        return self._arrays.rows(step), self._shares[shares, share].batch(step)


class _StepOrder:
    """Batches that are read one after the other; the batches for other workers are skipped."""

    def __init__(self, job: Job, kind: int, steps: int | None) -> None:
        self._job, self._kind, self._steps = job, kind, steps
        self._next = 0
        self._last: Any = None
        self._iterator: Iterator[Any] | None = None

    def batch(self, step: int, shares: int, share: int) -> tuple[int, Any]:
        if self._iterator is None or step < self._next - 1:
            data = _data(self._job, self._kind, self._steps, step)
            self._iterator, self._next = iter(data.dataset), step
        while self._next <= step:
            self._last = next(self._iterator)
            self._next += 1
        rows = _rows(self._last)
        return rows, self._last if shares == 1 else take_rows(self._last, shares, share)


def _reader(job: Job, kind: int, steps: int | None) -> _ByIndex | _StepOrder:
    arrays = _data(job, kind, steps).arrays
    return _ByIndex(arrays) if arrays else _StepOrder(job, kind, steps)


def _data(job: Job, kind: int, steps: int | None, start: int = 0, *, num_workers: int = 1) -> WorkerData:
    training = kind == TRAINING
    source, name = (job.data, "x") if training else (job.validation, "validation_data")
    assert source is not None
    assert not isinstance(source, FunctionByName)  # the launcher has refused it
    context = job.context(training=training, num_workers=num_workers)
    return make_data(source, context, steps, start, name=name, form=job.form)


def _no_model() -> None:
    """Stands for the model function, which only the chief calls."""


def _rows(data: object) -> int:
    first = next(part for part in tf.nest.flatten(data) if part is not None)
    if isinstance(first, tf.RaggedTensor):
        return int(first.nrows())
    return int(first.dense_shape[0]) if isinstance(first, tf.SparseTensor) else int(first.shape[0])


def _array(part: object) -> Any:
    return part.numpy() if hasattr(part, "numpy") else part


def _bytes(value: Any) -> bytes:
    return bytes(value.item() if isinstance(value, np.ndarray) else value)
