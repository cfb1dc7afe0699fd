"""Evaluation as one worker does it: its rows of each batch, and metrics of all workers."""

from __future__ import annotations

import time

import keras

from tfdistr.strategies.worker_strategy import WorkerStrategy
from tfdistr.training.job import Job
from tfdistr.training.loop import evaluate
from tfdistr.training.reader import Reader
from tfdistr.training.reporter import history_of
from tfdistr.training.trained_model import Training
from tfdistr.training.user_code import build_model


def evaluate_job(job: Job, strategy: WorkerStrategy) -> Training:
    """Evaluate the job's model as this worker. The metrics are the history of one epoch."""
    if strategy.num_workers > 1:  # they must read the examples in one order
        keras.utils.set_random_seed(job.seed)
    with strategy.scope():
        model = build_model(job)
    data = Reader(job, strategy).data_in_order(job.source, job.steps_per_epoch)
    strategy.prepare(model, data)
    started = time.monotonic()
    logs = evaluate(model, data)
    return Training(
        model=None,
        history=history_of({name: [value] for name, value in logs.items()}),
        inputs=None,
        seconds=time.monotonic() - started,
        communication=strategy.communication,
    )
