"""``tfdistr test``: a small real job, which says whether the workers give the numbers of one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr.clusters.local.local_cluster import describe_local_cluster
from tfdistr.fit import distributed_fit
from tfdistr.jobs.strategies import MultiWorkerMirrored

if TYPE_CHECKING:
    import keras

    from tfdistr.cli.script_options import Workers
    from tfdistr.jobs.result import FitResult

TOLERANCE = 1e-4
"""Of weights: the sums of several workers have another order, and training enlarges their rounding."""
ARGUMENTS = {"batch_size": 64, "epochs": 4, "seed": 1, "verbose": 0}
"""Of ``distributed_fit()``, for both trainings."""


@dataclass(frozen=True)
class SelfTestVerdict:
    """The findings of a test."""

    lines: Sequence[str]
    ok: bool

    def __str__(self) -> str:
        return "\n".join(self.lines)


def plan(workers: Workers) -> list[tuple[str, dict[str, Any]]]:
    """Return the words and the arguments of the two trainings: on one worker, and on the workers."""
    cluster = workers.cluster(follow=False, warm=True)
    one = describe_local_cluster(1, env=workers.env, start_timeout=workers.start_timeout)
    count = "one worker" if cluster.workers == 1 else f"{cluster.workers} workers"
    strategy = MultiWorkerMirrored(communication=workers.communication)
    return [
        ("Training on one worker of this machine ...", {**ARGUMENTS, "cluster": one}),
        (
            f"Training on {count} {cluster.where} ...",
            {**ARGUMENTS, "cluster": cluster, "strategy": strategy},
        ),
    ]


def self_test(
    workers: Workers,
    say: Callable[[str], object],
    train: Callable[[Mapping[str, Any]], FitResult] | None = None,
) -> SelfTestVerdict:
    """Train a small model on one worker, then on the workers, and compare; ``say`` shows the steps."""
    train = train or _train
    fits = []
    for words, arguments in plan(workers):
        say(words)
        fits.append(train(arguments))
    return judge(*fits)


def judge(one: FitResult, many: FitResult) -> SelfTestVerdict:
    """Compare the result of one worker with the result of many."""
    pairs = zip(one.model.get_weights(), many.model.get_weights(), strict=True)
    apart = max(float(np.max(np.abs(a - b), initial=0.0)) for a, b in pairs)
    ok = math.isfinite(apart) and apart <= TOLERANCE
    hosts = sorted({row["host"] for row in many.workers})
    lines = [
        f"Workers: {len(many.workers)}, on {', '.join(hosts)}",
        f"Gradients: {_carrier(many.params['communication'])}",
        f"Tuning: {many.params['tuning']}",
        f"Difference of the weights from those of one worker: {apart:.1e} (allowed: {TOLERANCE:.0e})",
        f"Loss: {one.history['loss'][-1]:.6f} with one worker, {many.history['loss'][-1]:.6f} with "
        f"{len(many.workers)}",
        f"Seconds of the job, with its start: {_seconds(one):.1f} with one worker, {_seconds(many):.1f} with "
        f"{len(many.workers)}",
        "This says nothing about speed: nearly all of so small a job is its start.",
    ]
    not_well = "Not well: the workers do not give the numbers of one. `tfdistr doctor` compares versions."
    return SelfTestVerdict([*lines, "All is well." if ok else not_well], ok)


def _carrier(communication: str) -> str:
    return {
        "none": "one worker sends none",
        "mpi": "MPI",
        "ring": "TensorFlow's ring, by gRPC",
        "nccl": "NCCL",
    }.get(communication, communication)


def _seconds(fit: FitResult) -> float:
    return max(float(row["seconds"]) for row in fit.workers)


def _train(arguments: Mapping[str, Any]) -> FitResult:
    from tfdistr.data.datasets import load_dataset

    return distributed_fit(_model, load_dataset("digits", "train"), **arguments)


def _model() -> keras.Model:
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [layers.Rescaling(1 / 16), layers.Flatten(), layers.Dense(32, "relu"), layers.Dense(10, "softmax")]
    )
    model.compile(keras.optimizers.SGD(0.05), "sparse_categorical_crossentropy")
    return model
