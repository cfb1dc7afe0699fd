"""The systems that train in the benchmarks, tfdistr and its rivals, and how each is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from networks import CNNS, NETWORKS
from processes import CORES, HERE, Command, environment, fits, pinned, python, tf_config, torchrun

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

#: The programs of a system, for a network, a folder, and the steps of two epochs, if less is to be trained.
Commands = Callable[[str, Path, int | None], list[Command]]


@dataclass(frozen=True)
class System:
    """A way to train a network.

    Attributes:
        name: Its name in tables.
        commands: Its programs.
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


def fit(workers: int, communication: str = "auto", language: str = "Python") -> Commands:
    """tfdistr, which pins its workers itself."""

    def commands(network: str, folder: Path, steps: int | None) -> list[Command]:
        call = {"folder": str(folder), "network": network, "workers": workers, "cores": 1, "steps": steps}
        return [fits([{**call, "communication": communication}], language)]

    return commands


def alone(network: str, folder: Path, steps: int | None) -> list[Command]:
    """Two runs of one worker at the same time."""
    call = {"folder": str(folder), "network": network, "workers": 1, "cores": 1, "steps": steps}
    call["alongside"] = WORKERS
    return [pinned(fits([call]), worker) for worker in range(WORKERS)]


def program(name: str, *own: object, of: str = sys.executable, cores: int = 0) -> Commands:
    """A program: one for each worker, on a core of its own, or one process with so many ``cores``."""

    def commands(network: str, folder: Path, steps: int | None) -> list[Command]:
        command = python(name, *own, network, folder, *(("--steps", steps) if steps else ()), of=of)
        if cores:
            return [["taskset", "--cpu-list", ",".join(map(str, CORES[:cores])), *command]]
        return [pinned(command, worker) for worker in range(WORKERS)]

    return commands


def compiled() -> list[dict[str, str]]:
    """As for DDP, with a cache of compiled code that later runs use."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": os.fspath(HERE.parent / ".cache" / "bench-inductor")}
    return [environment | cache for environment in torchrun(WORKERS)]


#: In the order of the tables.
SYSTEMS = (
    System(KERAS, program("stock.py", "keras", cores=1), processes=1, shares=1),
    System(KERAS_ALL, program("stock.py", "keras", "--shares", WORKERS, cores=WORKERS), processes=1),
    System(ONE, fit(1), processes=1, shares=1),
    System(MWMS, program("stock.py", "tf-keras", of=OTHERS), lambda: tf_config(WORKERS)),
    System(DDP, program("ddp.py", of=OTHERS), lambda: torchrun(WORKERS)),
    System(COMPILED, program("ddp.py", "--model", "compiled", of=OTHERS), compiled),
    System(KERAS_TORCH, program("ddp.py", "--model", "keras", of=OF_TORCH), lambda: torchrun(WORKERS)),
    System(KERAS_JAX, program("stock.py", "jax", of=OF_JAX), lambda: torchrun(WORKERS)),
    System(RING, fit(WORKERS, "ring")),
    System(MPI, fit(WORKERS, "mpi")),
    System(MPI_R, fit(WORKERS, "mpi", "R"), networks=CNNS),
    System(ALONE, alone, runs=2, shares=1),
)
#: The systems that tfdistr has to be as fast as.
RIVALS = (KERAS, KERAS_ALL, MWMS, DDP, COMPILED, KERAS_TORCH, KERAS_JAX)
