"""One worker of the all-reduce alone: how many milliseconds (median) a tensor of each size takes.

Usage: all_reduce.py gloo|ring|mpi|mpi4py FOLDER
(started as what it measures is: torchrun's, TensorFlow's or MPI's way)
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

#: Bytes of a tensor, and how often it is reduced.
SIZES = {4: 200, 1_400_000: 100, 10_000_000: 30, 100_000_000: 6}


def gloo(numbers: np.ndarray) -> Callable[[], Any]:
    import torch

    tensor = torch.from_numpy(numbers)
    return lambda: torch.distributed.all_reduce(tensor)


def mpi4py(numbers: np.ndarray) -> Callable[[], Any]:
    from mpi4py import MPI

    total = np.empty_like(numbers)
    return lambda: MPI.COMM_WORLD.Allreduce(numbers, total)


def tfdistr(numbers: np.ndarray) -> Callable[[], Any]:
    import tensorflow as tf

    tensor = tf.constant(numbers)

    @tf.function
    def reduce() -> tf.Tensor:
        return strategy.extended.collectives.all_reduce(tf.distribute.ReduceOp.SUM, [tensor])[0]

    return reduce


backend, folder = sys.argv[1:]
own = {"gloo": gloo, "mpi4py": mpi4py}
if backend == "gloo":
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
elif backend not in own:
    from tfdistr import MultiWorkerMirroredStrategy

    strategy = MultiWorkerMirroredStrategy(communication=backend)

found = {}
for size, times in SIZES.items():
    numbers = np.zeros(size // 4, np.float32)
    reduce = own.get(backend, tfdistr)(numbers)
    reduce()
    reduce()
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        reduce()
        seconds.append(time.perf_counter() - began)
    found[size] = {"ms": statistics.median(seconds) * 1000}
Path(folder, f"{os.getpid()}.json").write_text(json.dumps(found))
if backend == "gloo":
    torch.distributed.barrier()
    os._exit(0)  # it may abort at exit
