"""The data of a job on one worker: its reading, its checks, and the weights of its classes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr.data.datasets import Dataset
from tfdistr.data.pipeline.fed_batches import FedBatches
from tfdistr.data.pipeline.host_cache import HostMemory
from tfdistr.data.pipeline.worker_data import WorkerData, make_data
from tfdistr.data.source import Arrays, Source
from tfdistr.errors import ArgumentError, DataShardError
from tfdistr.strategies.worker_strategy import WorkerStrategy
from tfdistr.training.job import Job


class Reader:
    """The reader of one worker's batches."""

    def __init__(self, job: Job, strategy: WorkerStrategy) -> None:
        self._job = job
        self.form = job.form
        self._place: dict[str, Any] = {
            "num_workers": strategy.num_workers,
            "index": strategy.worker_index,
            "virtual_workers": strategy.own_virtual_workers,
        }
        self._peers = peers = strategy.collectives
        self._memory = HostMemory.join(peers.exchange) if peers else HostMemory()

    def training_data(self, start: int = 0, *, of_known_size: bool = False) -> WorkerData:
        """Return the training data from step ``start`` on, counted over all epochs; see ``make_data``."""
        context = self._job.context(training=True, **self._place)
        data = make_data(
            self._job.source, context, self._job.steps_per_epoch, start, memory=self._memory,
            of_known_size=of_known_size, form=self.form,
        )  # fmt: skip
        self.form = data.form or self.form
        return self._alike(data, "x")

    def data_in_order(self, source: Source, steps: int | None, name: str = "x") -> WorkerData:
        """Data that is not shuffled, for a validation or an evaluation; ``steps`` is None for one pass."""
        context = self._job.context(training=False, **self._place)
        if isinstance(source, Arrays):
            source = source.matched(self.form, name)
        elif isinstance(source, Dataset):
            source = self.form.dataset(source, name)
        data = make_data(source, context, steps, name=name, memory=self._memory, form=self.form)
        return self._alike(data, name)

    def _alike(self, data: WorkerData, name: str) -> WorkerData:
        """Check that Python or R code yields the same first batches on all workers, but for rounding."""
        if self._peers is not None and data.fed:
            assert isinstance(data.dataset, FedBatches)
            texts = self._peers.exchange(json.dumps(data.dataset.summary))
            check_alike([json.loads(text) for text in texts], name)
        return data


def check_alike(summaries: Sequence[Sequence[float]], name: str) -> None:
    """Refuse batches of ``name`` that differ between workers, by the summary of each worker's batches."""
    first = summaries[0]
    for worker, other in enumerate(summaries):
        if len(other) != len(first) or not np.allclose(other, first, rtol=1e-3, equal_nan=True):
            raise DataShardError(
                f"`{name}` must yield the same batches on all workers: each takes its rows of them.",
                received=f"first batches that differ between worker 0 and worker {worker}",
                fix="Draw its random numbers from `random` or `numpy.random`, which have the job's seed, or "
                "give its generator a seed, as in numpy.random.default_rng(1).",
            )


def weigh_classes(weights: Mapping[int, float] | None, spec: object) -> Callable[[Any], object] | None:
    """Return a function that adds class weights: ``(x, y)`` becomes ``(x, y, sample_weight)``."""
    if not weights:
        return None
    if not isinstance(spec, tuple) or len(spec) != 2 or tf.nest.is_nested(spec[1]):
        raise ArgumentError(
            "`class_weight` is for data (x, y) with one target and no sample weights.",
            received=f"batches of {spec}",
            fix="Leave `class_weight` out and give each example its weight: (x, y, sample_weight).",
        )
    # The last entry stands for all other classes.
    table = [float(weights.get(number, 1.0)) for number in range(max(weights) + 2)]

    def weigh(batch: tuple[object, tf.Tensor]) -> tuple[Any, tf.Tensor, tf.Tensor]:
        x, y = batch
        if y.shape.rank is not None and y.shape.rank >= 2 and y.shape[-1] != 1:
            classes = tf.argmax(y, axis=-1, output_type=tf.int32)
        else:
            whole = y if y.dtype.is_integer or y.dtype.is_bool else tf.round(y)
            classes = tf.cast(whole, tf.int32)
            classes = tf.squeeze(classes, axis=-1) if (y.shape.rank or 0) >= 2 else classes
        known = (classes >= 0) & (classes < len(table) - 1)
        return x, y, tf.gather(
            tf.constant(table, keras.config.floatx()), tf.where(known, classes, len(table) - 1)
        )  # fmt: skip

    return weigh
