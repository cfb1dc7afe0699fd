"""The tasks of a worker in a job: training, evaluation and prediction."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.checkpoint.preemption import Preemption
from tfdistr.data.order.shard import bounds
from tfdistr.data.pipeline import stream
from tfdistr.data.pipeline.file_examples import FileErrors
from tfdistr.data.pipeline.worker_data import make_data
from tfdistr.strategies.worker_strategy import WorkerStrategy
from tfdistr.training.data_checks import label_errors
from tfdistr.training.job import Job
from tfdistr.training.job_data import Reader
from tfdistr.training.loop import evaluate_model
from tfdistr.training.prediction_files import FOLDER, Writer
from tfdistr.training.reporter import OnEvent, history_of
from tfdistr.training.train import train
from tfdistr.training.trained_model import Training, build_model
from tfdistr.training.watchdog import Watchdog, progress


def predict_job(job: Job, strategy: WorkerStrategy, run_dir: Path) -> Training:
    """Write this worker's part of the outputs into ``run_dir``."""
    keras.utils.set_random_seed(job.seed)  # workers must read the examples in one order
    model = build_model(job)  # outside of the scope: no worker needs another one
    started = time.monotonic()
    folder = run_dir / FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    write_predictions(model, job, folder, strategy.num_workers, strategy.worker_index)
    return Training(history={}, seconds=time.monotonic() - started, communication="none")


def write_predictions(model: keras.Model, job: Job, folder: Path, workers: int = 1, index: int = 0) -> None:
    """Write the outputs of a worker's share of the batches."""
    writer = Writer(folder, index)
    for outputs in predictions(model, _own_batches(job, workers, index)):
        writer.write(outputs)
    writer.flush()


def predictions(model: keras.Model, batches: Iterator[object]) -> Iterator[object]:
    """Yield the outputs of a model for each batch."""
    model.make_predict_function()
    predict = model.predict_function
    if isinstance(predict, tf.types.experimental.PolymorphicFunction):
        tf_internals.traced_for_each_job(predict)
    # XLA cannot take targets that are text, and Keras's step does not read targets.
    whole = type(model).predict_step is not keras.Model.predict_step
    for batch in batches:
        x, _, _ = keras.utils.unpack_x_y_sample_weight(batch)
        outputs = predict([batch if whole else (x,)])
        yield tf.nest.map_structure(_in_numpy, outputs)
        progress()


def _in_numpy(output: object) -> Any:
    return output.numpy() if isinstance(output, tf.Tensor) else output


def _own_batches(job: Job, workers: int, index: int) -> Iterator[object]:
    make = functools.partial(make_data, job.source, job.context(training=False), form=job.form)
    data = make(job.steps_per_epoch)
    total = data.steps
    if total is None and workers > 1:
        total = data.dataset.count() if data.fed else stream.count(data.dataset)
        data = make(total)
    if total is None:
        return iter(data.dataset)
    first, end = bounds(total, workers, index)
    if first:
        data = make(total, first)
    return itertools.islice(data.dataset, end - first)


def evaluate_job(job: Job, strategy: WorkerStrategy) -> Training:
    """Evaluate the job's model as this worker. The metrics are the history of one epoch."""
    if strategy.num_workers > 1:  # they must read the examples in one order
        keras.utils.set_random_seed(job.seed)
    with strategy.scope():
        model = build_model(job)
    data = Reader(job, strategy).data_in_order(job.source, job.steps_per_epoch)
    strategy.prepare(model, data)
    started = time.monotonic()
    logs = evaluate_model(model, data)
    return Training(
        history=history_of({name: [value] for name, value in logs.items()}),
        seconds=time.monotonic() - started,
        communication=strategy.communication,
    )


def run_task(
    job: Job,
    strategy: WorkerStrategy,
    on_event: OnEvent,
    run_dir: Path | None = None,
    preemption: Preemption | None = None,
) -> Training:
    """Run the task of a job as this worker; ``run_dir`` has checkpoints and predictions."""
    with Watchdog(job.recovery.step_timeout, strategy), FileErrors().raised(), label_errors():
        if job.task == "evaluate":
            return evaluate_job(job, strategy)
        if job.task == "predict":
            assert run_dir is not None
            return predict_job(job, strategy, run_dir)
        return train(job, strategy, on_event, run_dir, preemption or Preemption())
