"""Where the time of a step of two workers goes: variants of it, in turn, in the same two processes.

    .venv/bin/mpiexec -n 2 .venv/bin/python benchmarks/step.py seed

Each worker has a core of its own.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[int(os.environ["PMI_RANK"])]})

import tfdistr  # noqa: E402

strategy = tfdistr.MultiWorkerMirroredStrategy(communication="mpi")

import keras  # noqa: E402
import networks  # noqa: E402
import tensorflow as tf  # noqa: E402

from tfdistr import tf_internals  # noqa: E402
from tfdistr.collectives.mpi import world  # noqa: E402
from tfdistr.collectives.mpi.collectives import MpiCollectives  # noqa: E402
from tfdistr.data.order.context import WorkerContext  # noqa: E402
from tfdistr.data.pipeline.worker_data import WorkerData, make_data  # noqa: E402
from tfdistr.data.source import make_source  # noqa: E402
from tfdistr.strategies.build import build  # noqa: E402
from tfdistr.training.step_blocks import Steps  # noqa: E402

ROUNDS = 12


def nothing(self: MpiCollectives, tensors: Sequence[tf.Tensor], dtype: tf.DType | None) -> Any:
    return [tf.identity(tensor) for tensor in tensors]


def through_python(self: MpiCollectives, tensors: Sequence[tf.Tensor], dtype: tf.DType | None) -> Any:
    """The call out of the graph, without the all-reduce that it is for."""
    return tf.numpy_function(lambda *arrays: arrays, tensors, [tensor.dtype for tensor in tensors])


def as_keras_does(model: Any, **options: object) -> contextlib.AbstractContextManager[None]:
    """Leave it to Keras how the weights change."""
    return contextlib.nullcontext()


def steps(name: str, data: WorkerData, *, in_scope: bool = False, **replaced: object) -> Steps:
    """The steps of a new model.

    Args:
        name: The network.
        data: Its batches.
        in_scope: Whether its workers train together.
        replaced: What is traced in the place of ``_sum_pack``, the sum over the workers, or ``fewer_passes``.
    """
    with contextlib.ExitStack() as stack:
        for attribute, value in replaced.items():
            owner = MpiCollectives if attribute == "_sum_pack" else tf_internals
            stack.enter_context(tf_internals.overridden(owner, attribute, value))
        if in_scope:
            with strategy.scope():
                model = networks.model(name, keras)
            build(model, data.dataset)
        else:
            model = networks.model(name, keras)
        made = Steps(model, model.train_step, data)
        made.run(2)
    return made


def main(name: str) -> None:
    index, workers = strategy.worker_index, strategy.num_workers
    context = WorkerContext(workers, index, networks.PER_WORKER_BATCH * workers, seed=1, shuffle=True)
    data = make_data(make_source(*networks.data(name)), context)
    variants = {
        "one worker, weights change in Keras": steps(name, data, fewer_passes=as_keras_does),
        "one worker's step": steps(name, data),
        "under the strategy, nothing sent": steps(name, data, in_scope=True, _sum_pack=nothing),
        "and a call of Python": steps(name, data, in_scope=True, _sum_pack=through_python),
        "and the all-reduce: the whole step": steps(name, data, in_scope=True),
    }
    took: dict[str, list[float]] = {variant: [] for variant in variants}
    count = 100 if name == "seed" else 12
    for _ in range(ROUNDS):
        for variant, made in variants.items():
            world.world().Barrier()
            began = time.perf_counter()
            made.run(count)
            world.world().Barrier()
            took[variant].append((time.perf_counter() - began) / count)
    if index == 0:
        print(f"{networks.NETWORKS[name].title}: ms of a step, medians of {ROUNDS} times {count} steps")
        for variant, seconds in took.items():
            print(f"  {variant:38}{1000 * statistics.median(seconds):7.2f}", flush=True)


main(sys.argv[1])
strategy.leave()
