"""The data of a job on one worker: its reading and checks."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfdistr.data.pipeline.host_cache import HostMemory
from tfdistr.data.pipeline.worker_data import WorkerData, make_data
from tfdistr.data.source import Source
from tfdistr.errors import ArgumentError
from tfdistr.strategies.worker_strategy import WorkerStrategy
from tfdistr.training.job import Job


class Reader:
    """The reader of one worker's batches.

    Args:
        job: The job.
        strategy: The strategy of the worker.
    """

    def __init__(self, job: Job, strategy: WorkerStrategy) -> None:
        self._job = job
        self._place: dict[str, Any] = {
            "num_workers": strategy.num_workers,
            "index": strategy.worker_index,
            "virtual_workers": strategy.own_virtual_workers,
        }
        peers = strategy.collectives
        self._memory = HostMemory.join(peers.exchange) if peers else HostMemory()

    def training_data(self, start: int = 0, *, of_known_size: bool = False) -> WorkerData:
        """Return the training data from step ``start`` on, counted over all epochs; see ``make_data``."""
        context = self._job.context(training=True, **self._place)
        return make_data(
            self._job.source, context, self._job.steps_per_epoch, start, memory=self._memory,
            of_known_size=of_known_size,
        )  # fmt: skip

    def data_in_order(self, source: Source, steps: int | None, name: str = "x") -> WorkerData:
        """Data that is not shuffled, for a validation or an evaluation.

        Args:
            source: The data.
            steps: Number of steps; None for one pass.
            name: The name of the data for the user.
        """
        context = self._job.context(training=False, **self._place)
        return make_data(source, context, steps, name=name, memory=self._memory)


def check_labels(model: keras.Model, element_spec: Any) -> None:
    """Check that the labels are numbers if the losses of ``compile()`` get them.

    Keras casts labels to the type of the outputs before it calls a loss, also the user's. TensorFlow's error
    ("Cast string to float is not supported") names neither the labels nor the fix. The user's training step
    or ``__call__()`` may use text.

    Args:
        model: A compiled model.
        element_spec: The shapes and types of a batch: of inputs, labels and weights.

    Raises:
        ArgumentError: The labels are text.
    """
    labels = element_spec[1] if isinstance(element_spec, tuple) and len(element_spec) > 1 else ()
    if not any(part.dtype == tf.string for part in tf.nest.flatten(labels)):
        return
    losses = [loss for loss in tf.nest.flatten(model.loss) if loss is not None]
    steps = ("train_step", "compute_loss")
    replaced = any(getattr(type(model), name) is not getattr(keras.Model, name) for name in steps)
    if losses and not replaced and not any(map(_casts_nothing, losses)):
        raise ArgumentError(
            "The labels must be numbers: Keras casts them to the type of the model's outputs.",
            received="text as labels",
            fix="Pass the numbers of the classes, from 0: in R a factor, as in `y = factor(y)`; in Python "
            "`pandas.factorize(y)[0]`. Files need a column of numbers as their `target`.",
        )


def _casts_nothing(loss: Any) -> bool:
    return isinstance(loss, keras.losses.Loss) and type(loss).__call__ is not keras.losses.Loss.__call__
