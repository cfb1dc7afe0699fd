"""Evaluation as one worker does it: its rows of each batch, and metrics of all workers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import keras

from tfdistr.checkpoint.preemption import Preemption
from tfdistr.data.host_cache import HostMemory
from tfdistr.data.pipeline import make_data
from tfdistr.strategies.worker_strategy import WorkerStrategy
from tfdistr.training.job import Job
from tfdistr.training.loop import evaluate
from tfdistr.training.reporter import OnEvent, history_of
from tfdistr.training.trained_model import Training, input_spec
from tfdistr.training.user_code import build_model
from tfdistr.training.watchdog import Watchdog


def evaluate_job(
    job: Job,
    strategy: WorkerStrategy,
    on_event: OnEvent,
    run_dir: Path | None = None,
    preemption: Preemption | None = None,
) -> Training:
    """Evaluate the job's model as this worker; see ``train()`` for the arguments.

    Returns:
        The metrics, as the history of one epoch.
    """
    with Watchdog(job.step_timeout, strategy):
        if strategy.num_workers > 1:  # they must read the examples in one order
            keras.utils.set_random_seed(job.seed)
        with strategy.scope():
            model = build_model(job)
        memory = HostMemory.join(strategy.collectives.exchange) if strategy.collectives else HostMemory()
        place: dict[str, Any] = {
            "num_workers": strategy.num_workers,
            "index": strategy.worker_index,
            "virtual_workers": strategy.own_virtual_workers,
        }
        data = make_data(job.source, job.context(training=False, **place), job.steps_per_epoch, memory=memory)
        strategy.prepare(model, data.dataset)
        started = time.monotonic()
        logs = evaluate(model, data)
        return Training(
            model=None,
            history=history_of({name: [value] for name, value in logs.items()}),
            inputs=input_spec(data.dataset),
            seconds=time.monotonic() - started,
            communication=strategy.communication,
        )
