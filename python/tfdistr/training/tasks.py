"""The tasks of a worker in a job: training, evaluation and prediction."""

from __future__ import annotations

import time
from pathlib import Path

import keras

from tfdistr.checkpoint.preemption import Preemption
from tfdistr.data.pipeline.file_examples import refused_files
from tfdistr.strategies.worker_strategy import WorkerStrategy
from tfdistr.training.job import Job
from tfdistr.training.job_data import Reader
from tfdistr.training.loop import evaluate
from tfdistr.training.predict import predict_job
from tfdistr.training.reporter import OnEvent, history_of
from tfdistr.training.train import train
from tfdistr.training.trained_model import Training
from tfdistr.training.user_code import build_model
from tfdistr.training.watchdog import Watchdog


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


def run_task(
    job: Job,
    strategy: WorkerStrategy,
    on_event: OnEvent,
    run_dir: Path | None = None,
    preemption: Preemption | None = None,
) -> Training:
    """Run the task of a job as this worker.

    Args:
        job: The job.
        strategy: The result of ``make_strategy()``, or ``SingleWorker()``.
        on_event: Called as ``on_event(kind, **fields)`` with the events of the progress display.
        run_dir: Folder with the checkpoints of the job, if it has any, and for its predictions. Only the
            chief's checkpoints are used.
        preemption: Records SIGTERM, if there are checkpoints. After the call, it shows whether a SIGTERM came
            too late to be handled.

    Raises:
        JobStoppedError: The job was preempted, and has saved a checkpoint.
        ArgumentError: The model function or the callbacks are not valid, or a file of the data is damaged.
        DataShardError: The data cannot be split over the workers.
        StepTimeoutError: This worker has made no step for too long.
    """
    with Watchdog(job.step_timeout, strategy), refused_files():
        if job.task == "evaluate":
            return evaluate_job(job, strategy)
        if job.task == "predict":
            assert run_dir is not None
            return predict_job(job, strategy, run_dir)
        return train(job, strategy, on_event, run_dir, preemption or Preemption())
