"""The prediction of one worker: whole batches, each on one worker, in files in the order of the data."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfdistr.data.order.context import WorkerContext
from tfdistr.data.order.shard import bounds
from tfdistr.data.pipeline import stream
from tfdistr.data.pipeline.worker_data import make_data
from tfdistr.data.source import Source
from tfdistr.strategies.worker_strategy import WorkerStrategy
from tfdistr.training.job import Job
from tfdistr.training.prediction_files import FOLDER, Writer
from tfdistr.training.trained_model import Training
from tfdistr.training.user_code import build_model
from tfdistr.training.watchdog import progress


def predict_job(job: Job, strategy: WorkerStrategy, run_dir: Path) -> Training:
    """Write this worker's part of the outputs into ``run_dir``."""
    keras.utils.set_random_seed(job.seed)  # workers must read the examples in one order
    model = build_model(job)  # outside of the scope: no worker needs another one
    started = time.monotonic()
    folder = run_dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    write_predictions(
        model, job.source, job.context(training=False), job.steps_per_epoch, folder,
        strategy.num_workers, strategy.worker_index,
    )  # fmt: skip
    return Training(
        model=None, history={}, inputs=None, seconds=time.monotonic() - started, communication="none"
    )


def write_predictions(
    model: keras.Model, source: Source, context: WorkerContext, steps: int | None, folder: Path,
    workers: int = 1, index: int = 0,
) -> None:  # fmt: skip
    """Write the outputs of a worker's share of the batches.

    Args:
        model: The model.
        source: The data.
        context: The context of one worker, which reads whole batches.
        steps: Number of batches; None for all.
        folder: Where the files are written.
        workers: Number of workers.
        index: Index of this worker.
    """
    writer = Writer(folder, index)
    for outputs in predictions(model, _own_batches(source, context, steps, workers, index)):
        writer.write(outputs)
    writer.flush()


def predictions(model: keras.Model, batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the outputs of a model for each batch."""
    model.make_predict_function()
    # XLA cannot take targets that are text, and Keras's step does not read targets.
    whole = type(model).predict_step is not keras.Model.predict_step
    for batch in batches:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        outputs = model.predict_function([batch if whole else (x,)])
        yield tf.nest.map_structure(_in_numpy, outputs)
        progress()


def _in_numpy(output: Any) -> Any:
    return output.numpy() if isinstance(output, tf.Tensor) else output


def _own_batches(
    source: Source, context: WorkerContext, steps: int | None, workers: int, index: int
) -> Iterator[Any]:
    data = make_data(source, context, steps)
    total = data.steps
    if total is None and workers > 1:
        total = data.dataset.count() if data.fed else stream.count(data.dataset)
        data = make_data(source, context, total)
    if total is None:
        return iter(data.dataset)
    first, end = bounds(total, workers, index)
    if first:
        data = make_data(source, context, total, first)
    return itertools.islice(data.dataset, end - first)
