"""The job of a run, from its files and the user's own model, data and callbacks."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import Any

import attrs
import keras

from tfdistr import tf_internals
from tfdistr.data.source import Arrays, describe_source
from tfdistr.errors import ArgumentError
from tfdistr.replays.kept_run import KeptRun
from tfdistr.strategies.callbacks import runs_on_chief_only
from tfdistr.strategies.virtual.rounding import may_use_one_thread
from tfdistr.strategies.worker_strategy import SingleWorker, WorkerStrategy
from tfdistr.training.job import Job
from tfdistr.training.job_arguments import make_job
from tfdistr.training.model_copies.given_model import callers_model
from tfdistr.training.trained_model import split_callbacks

log = logging.getLogger("tfdistr")

#: The message of the error that the data is other data.
OTHER_DATA = "The data of a replay must be that of the run."
#: The values of a run that are arguments of ``distributed_fit()``.
_ARGUMENTS = (
    "batch_size", "steps_per_epoch", "validation_steps", "validation_batch_size", "initial_epoch", "seed",
    "shuffle", "drop_remainder", "gradient_dtype", "virtual_workers", "strategy",
)  # fmt: skip


def job_of(run: KeptRun, step: int, model: Any, **data: Any) -> Job:
    """Return the job of a run.

    Args:
        model: The user's model function.
        data: ``x``, ``y``, ``sample_weight``, ``validation_data`` and ``callbacks`` of the user.

    Raises:
        ArgumentError: The model is no function, or the data differs from that of the run.
    """
    known = {name: run.job[name] for name in _ARGUMENTS}
    frequency = run.job["validation_freq"]
    job = make_job(
        model, num_workers=1, **data, **known, epochs=run.trace.starts[-1]["epochs"],
        validation_freq=frequency["epochs"] if isinstance(frequency, dict) else frequency,
        class_weight=run.job["class_weight"] or None,
    )  # fmt: skip
    if callers_model(job.model) is not None:
        raise ArgumentError(
            "`model` must be the function that made the model of the run: its first weights count.",
            received="a compiled model",
            fix="Put the code that makes the model into a function, and pass the function.",
        )
    _check_data(run, job, step)
    rate = {name: run.job[name] for name in ("learning_rate_factor", "warmup_epochs")}
    return attrs.evolve(job, **rate)


def _check_data(run: KeptRun, job: Job, step: int) -> None:
    made = run.trace.start_of(step)["data"]
    now = job.data.digest() if isinstance(job.data, Arrays) else None
    differs = None
    if describe_source(job.data) != run.job["examples"]:
        differs = f"{describe_source(job.data)!r}, where the run has {run.job['examples']!r}"
    elif None not in (made, now) and made != now:
        differs = f"arrays with the digest {now}, where those of the run have {made}"
    if differs is not None:
        raise ArgumentError(
            OTHER_DATA,
            received=differs,
            fix="Pass the `x`, `y` and `sample_weight` with which the run was trained.",
        )


def strategy_of(run: KeptRun, step: int) -> WorkerStrategy:
    """Return the strategy with which this process makes the steps of all workers.

    The rows of several workers are computed as shares, as virtual workers do.
    """
    shares = run.shares(step)
    if shares == 1 or (run.job["virtual_workers"] is None and not may_use_one_thread()):
        return SingleWorker()
    import tensorflow as tf

    from tfdistr.strategies.multi_worker_mirrored import MultiWorkerMirroredStrategy

    nobody = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec({}))
    return MultiWorkerMirroredStrategy(nobody, communication="ring", virtual_workers=shares)


def check_emulation(model: keras.Model, strategy: WorkerStrategy, shares: int) -> None:
    """Refuse layers whose result on several workers this process cannot compute."""
    if shares == 1 or not isinstance(strategy, SingleWorker):
        return
    normal = keras.layers.BatchNormalization
    parts = tf_internals.all_layers(model)
    layers = [part.name for part in parts if isinstance(part, normal) and not part.synchronized]
    layers += [layer.name for layer, _ in tf_internals.layers_with_generators(model)]
    if layers:
        raise ArgumentError(
            f"One process must be able to compute what {shares} workers have computed.",
            received=f"{', '.join(dict.fromkeys(layers))}: each worker normalized its own rows, or drew its "
            "own random numbers, for which this process has too many threads",
            fix="Call it before anything else uses TensorFlow in this process.",
        )


def callbacks_of(job: Job) -> list[keras.callbacks.Callback]:
    """Return copies of the callbacks that may change the training, as a step may be made again several times.

    Those that write, or run on the chief, are left out.
    A callback of the user's own class runs, and a warning names it.
    """
    found = [each for each in split_callbacks(job)[0] if not runs_on_chief_only(each)]
    own = [type(each).__name__ for each in found if type(each).__module__.partition(".")[0] not in _KNOWN]
    if own:
        log.warning(
            "The replay runs the callbacks of your own classes, as they may change the training: %s. Mark "
            "those that only write with chief_only().", ", ".join(own),
        )  # fmt: skip
    return [copy.copy(each) for each in found]


_KNOWN = ("keras", "tfdistr")
#: Callbacks that change nothing, whether they are passed or not.
_HARMLESS = (
    "BackupAndRestore", "CSVLogger", "History", "ModelCheckpoint", "ProgbarLogger", "RemoteMonitor",
    "TensorBoard", "TerminateOnNaN", "WarmUp",
)  # fmt: skip


def check_callbacks(job: Job, states: Sequence[str]) -> None:
    """Refuse to leave out callbacks of the run, whose states the checkpoint has by their names."""
    passed = {type(each).__name__ for each in split_callbacks(job)[0]}
    names = {state.partition(" ")[0] for state in states}
    missing = sorted(name for name in names - passed if name not in _HARMLESS)
    if missing:
        raise ArgumentError(
            "The callbacks of the run must be passed: they may change the training.",
            received=f"no {', '.join(missing)}",
            fix="Pass the `callbacks` of the run; those that write files are left out.",
        )
