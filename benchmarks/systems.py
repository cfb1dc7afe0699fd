"""The systems that train in the benchmarks, tfdistr and its rivals, and how each is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from networks import CNNS, NETWORKS
from processes import CORES, HERE, Command, environment, pinned, python, tf_config, torchrun

KERAS = "Keras 3 fit, stock"
KERAS_ALL = "Keras 3 fit, all cores"
MWMS = "tf-keras, stock MWMS"
DDP = "PyTorch DDP, gloo"
COMPILED = "PyTorch DDP, compiled"
KERAS_TORCH = "Keras 3 on torch, DDP"
KERAS_JAX = "Keras 3 on JAX"
ONE = "tfdistr, one worker"
RING = "tfdistr, ring"
MPI = "tfdistr, MPI"
MPI_R = "tfdistr, MPI, from R"
ALONE = "tfdistr, two alone"

#: Python with tf-keras and PyTorch, with Keras on torch, and with Keras on JAX; from tools/setup-bench.sh.
OTHERS, OF_TORCH, OF_JAX = map(environment, ("bench", "bench-torch", "bench-jax"))
WORKERS = 2

#: The programs of a system, for a network, a folder, and options of the programs.
Commands = Callable[..., list[Command]]


@dataclass(frozen=True)
class System:
    """A way to train a network.

    Attributes:
        name: Its name in tables.
        commands: Its programs, for a network, a folder, and options of the programs.
        environments: The environment of each program.
        processes: Number of processes that save a measurement.
        runs: Number of independent runs.
        shares: Number of per-worker batches in a step of one run.
        networks: The networks that it trains.
    """

    name: str
    commands: Commands
    environments: Callable[[], list[dict[str, str]]] = list
    processes: int = WORKERS
    runs: int = 1
    shares: int = WORKERS
    networks: tuple[str, ...] = tuple(NETWORKS)


def fit(workers: int, communication: str = "auto") -> Commands:
    """tfdistr from Python; it pins its workers itself."""
    own = ("--workers", workers, "--communication", communication)
    return lambda network, folder, *options: [python("fit.py", network, folder, *own, *options)]


def fit_r(network: str, folder: Path, *options: object) -> list[Command]:
    """tfdistr from R."""
    steps = [str(option) for option in options[1:]]
    return [["Rscript", str(HERE / "fit.R"), network, str(folder), str(WORKERS), "mpi", *steps]]


def alone(network: str, folder: Path, *options: object) -> list[Command]:
    """Two runs of one worker at the same time."""
    own = ("--workers", 1, "--alongside", WORKERS)
    command = python("fit.py", network, folder, *own, *options)
    return [pinned(command, worker) for worker in range(WORKERS)]


def stock(network: str, folder: Path, *options: object) -> list[Command]:
    """Keras's fit on one core."""
    return [pinned(python("stock.py", "keras", network, folder, *options), 0)]


def stock_all(network: str, folder: Path, *options: object) -> list[Command]:
    """Keras's fit in one process that has the cores of all workers, and their global batch."""
    command = python("stock.py", "keras", network, folder, "--shares", WORKERS, *options)
    return [["taskset", "--cpu-list", ",".join(map(str, CORES[:WORKERS])), *command]]


def on_workers(program: str, *own: object, of: str = sys.executable) -> Commands:
    """One program for each worker, on a core of its own."""

    def commands(network: str, folder: Path, *options: object) -> list[Command]:
        command = python(program, *own, network, folder, *options, of=of)
        return [pinned(command, worker) for worker in range(WORKERS)]

    return commands


def compiled() -> list[dict[str, str]]:
    """As for DDP, with a cache of compiled code that later runs use."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": os.fspath(HERE.parent / ".cache" / "bench-inductor")}
    return [environment | cache for environment in torchrun(WORKERS)]


#: In the order of the tables.
SYSTEMS = (
    System(KERAS, stock, processes=1, shares=1),
    System(KERAS_ALL, stock_all, processes=1),
    System(ONE, fit(1), processes=1, shares=1),
    System(MWMS, on_workers("stock.py", "tf-keras", of=OTHERS), lambda: tf_config(WORKERS)),
    System(DDP, on_workers("ddp.py", of=OTHERS), lambda: torchrun(WORKERS)),
    System(COMPILED, on_workers("ddp.py", "--model", "compiled", of=OTHERS), compiled),
    System(KERAS_TORCH, on_workers("ddp.py", "--model", "keras", of=OF_TORCH), lambda: torchrun(WORKERS)),
    System(KERAS_JAX, on_workers("keras_jax.py", of=OF_JAX), lambda: torchrun(WORKERS)),
    System(RING, fit(WORKERS, "ring")),
    System(MPI, fit(WORKERS, "mpi")),
    System(MPI_R, fit_r, networks=CNNS),
    System(ALONE, alone, runs=2, shares=1),
)
#: The systems that tfdistr has to be as fast as.
RIVALS = (KERAS, KERAS_ALL, MWMS, DDP, COMPILED, KERAS_TORCH, KERAS_JAX)
