"""One worker of the all-reduce alone: how many milliseconds (median) a tensor of each size takes, and the
bytes that this worker sends to the network.

Usage: all_reduce.py gloo|ring|mpi|mpi4py|nonblocking FOLDER [BYTES:TIMES ...]
(started as what it measures is: torchrun's, TensorFlow's or MPI's way)
"""

from __future__ import annotations

import ctypes
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
import numpy as np

#: Bytes of a tensor, and how often it is reduced.
SIZES = ("4:200", "1400000:100", "10000000:30", "100000000:6")

_SET_TIMER_SLACK = 29


def gloo(numbers: np.ndarray) -> Callable[[], Any]:
    import torch

    tensor = torch.from_numpy(numbers)
    return lambda: torch.distributed.all_reduce(tensor)


def mpi4py(numbers: np.ndarray) -> Callable[[], Any]:
    from mpi4py import MPI

    total = np.empty_like(numbers)
    return lambda: MPI.COMM_WORLD.Allreduce(numbers, total)


def nonblocking(numbers: np.ndarray) -> Callable[[], Any]:
    """The operation of MPI that tfdistr calls; it sleeps between two looks, as many ranks share a core."""
    from mpi4py import MPI

    total = np.empty_like(numbers)
    ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, 1)  # a short sleep is short

    def reduce() -> None:
        request = MPI.COMM_WORLD.Iallreduce(numbers, total)
        while not request.Test():
            time.sleep(2e-5)

    return reduce


def tfdistr(numbers: np.ndarray) -> Callable[[], Any]:
    import tensorflow as tf

    tensor = tf.constant(numbers)

    @tf.function
    def reduce() -> tf.Tensor:
        return strategy.extended.collectives.all_reduce(tf.distribute.ReduceOp.SUM, [tensor])[0]

    return reduce


engine, folder, *sizes = sys.argv[1:]
own = {"gloo": gloo, "mpi4py": mpi4py, "nonblocking": nonblocking}
if engine == "gloo":
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
elif engine not in own:
    from tfdistr import MultiWorkerMirroredStrategy

    strategy = MultiWorkerMirroredStrategy(communication=engine)

found = {}
for size, times in (map(int, each.split(":")) for each in sizes or SIZES):
    numbers = np.zeros(size // 4, np.float32)
    reduce = own.get(engine, tfdistr)(numbers)
    reduce()
    reduce()
    seconds = []
    sent = measure.sent_bytes()
    for _ in range(times):
        began = time.perf_counter()
        reduce()
        seconds.append(time.perf_counter() - began)
    sent = measure.sent_bytes() - sent
    found[size] = {"ms": statistics.median(seconds) * 1000, "sent": sent / times}
Path(folder, f"{os.getpid()}.json").write_text(json.dumps(found))
if engine == "gloo":
    torch.distributed.barrier()
    os._exit(0)  # it may abort at exit
