"""Images per second of tfdistr and of what it is compared with, and the all-reduce alone; see report.py.

    make bench
    make bench T='seed allreduce' ROUNDS=5     # parts: seed, wide, allreduce; also data, decode,
                                               # checkpoint, start, virtual, languages
    make bench T=wide SYSTEMS=MPI ROUNDS=15    # those with this in their name

Each worker has a core of its own. All systems run in turn, then again, so that a slow minute of the machine
hits them alike. A run counts with the median of its epochs but the first (tracing), a system with the
median of its runs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import checkpoint
import data
import decode
import languages
import launcher
import measure
import report
import start
import virtual
from networks import NETWORKS
from processes import Command, exit_when_terminated, mpiexec, pinned, python, run, tf_config, torchrun

#: Python with tf-keras and PyTorch, from tools/setup-bench.sh.
OTHERS = str(Path(__file__).parents[1] / ".cache/bench/bin/python")
PARTS = (*NETWORKS, "allreduce")
OTHER_PARTS = ("data", "decode", "checkpoint", "start", "virtual", "languages", "launcher")


T = TypeVar("T")


@dataclass(frozen=True)
class System:
    """Something that trains: its programs for a network and a folder, and their environments."""

    name: str
    workers: int
    commands: Callable[[str, Path], list[Command]]
    environments: Callable[[], list[dict[str, str]]] = list
    together: bool = True


def fit(workers: int, communication: str = "auto") -> Callable[[str, Path], list[Command]]:
    """tfdistr from Python; it pins its workers itself."""
    options = ("--workers", workers, "--communication", communication)
    return lambda network, folder: [python("fit.py", network, folder, *options)]


def fit_r(network: str, folder: Path) -> list[Command]:
    """tfdistr from R."""
    return [["Rscript", str(Path(__file__).with_name("fit.R")), network, str(folder), "2", "mpi"]]


def alone(network: str, folder: Path) -> list[Command]:
    """Two runs of one worker at the same time."""
    options = ("--workers", 1, "--alongside", 2)
    return [pinned(python("fit.py", network, folder, *options), worker) for worker in range(2)]


def stock(network: str, folder: Path) -> list[Command]:
    return [pinned(python("stock.py", "keras", network, folder), 0)]


def stock_mwms(network: str, folder: Path) -> list[Command]:
    return [pinned(python("stock.py", "tf-keras", network, folder, of=OTHERS), i) for i in range(2)]


def ddp(network: str, folder: Path) -> list[Command]:
    return [pinned(python("ddp.py", network, folder, of=OTHERS), i) for i in range(2)]


SYSTEMS = (
    System(report.KERAS, 1, stock),
    System(report.ONE, 1, fit(1)),
    System(report.MWMS, 2, stock_mwms, lambda: tf_config(2)),
    System(report.DDP, 2, ddp, lambda: torchrun(2)),
    System(report.RING, 2, fit(2, "ring")),
    System(report.MPI, 2, fit(2, "mpi")),
    System(report.MPI_R, 2, fit_r),
    System(report.ALONE, 2, alone, together=False),
)


def train(system: System, network: str) -> report.Run:
    """Let a system train a network once."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
        folder = Path(name)
        run(system.commands(network, folder), system.environments())
        workers = measure.saved(folder)
        assert len(workers) == system.workers, f"{system.name}: {len(workers)} workers saved a measurement"
        images = NETWORKS[network].examples / (system.workers if system.together else 1)
        return report.Run(
            images=sum(images / report.median(worker["epochs"][1:]) for worker in workers),
            peak_mb=max(worker["peak_mb"] for worker in workers),
            start=seconds_to_first_step(folder),
        )


def seconds_to_first_step(folder: Path) -> float | None:
    """From the call to the end of the first step, as tfdistr's chief reported."""
    events = next(folder.glob("run*/workers/0/events.jsonl"), None)
    if events is None:
        return None
    lines = map(json.loads, events.read_text().splitlines())
    first = next(event["time"] for event in lines if event["event"] == "batch")
    return first - float((folder / "called").read_text())


def all_reduce(engine: str) -> dict[int, float]:
    """Milliseconds by the bytes of the tensor, of the slower of two workers."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        command = python("all_reduce.py", engine, folder, of=OTHERS if engine == "gloo" else sys.executable)
        if engine in ("mpi", "mpi4py"):
            run([mpiexec(command, 2)])
        else:
            environments = torchrun(2) if engine == "gloo" else tf_config(2)
            run([pinned(command, worker) for worker in range(2)], environments)
        first, second = measure.saved(folder)
    return {int(size): max(found["ms"], second[size]["ms"]) for size, found in first.items()}


def main() -> None:
    exit_when_terminated()
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", nargs="*", choices=[*PARTS, *OTHER_PARTS], default=[])
    parser.add_argument("--systems", default="", metavar="NAME", help="only those with this in their name")
    given = parser.parse_args()
    parts = given.parts or PARTS
    systems = [system for system in SYSTEMS if given.systems in system.name]
    networks = [name for name in NETWORKS if name in parts]
    trained: report.Trained = {name: {system.name: [] for system in systems} for name in networks}
    reduced: report.Reduced = {engine: [] for engine in report.ENGINES if "allreduce" in parts}
    for number in range(given.rounds):
        print(f"round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
        for network in networks:
            for system in systems:
                trained[network][system.name] += tried(train, system, network)
        for engine in reduced:
            reduced[engine] += tried(all_reduce, engine)
    if trained or reduced:
        print(report.report(trained, reduced, given.rounds), flush=True)
    if "data" in parts:
        data.compare(given.rounds)
    if "decode" in parts:
        decode.compare(given.rounds)
    if "checkpoint" in parts:
        checkpoint.compare(given.rounds)
    if "start" in parts:
        start.compare(given.rounds)
    if "virtual" in parts:
        virtual.compare(given.rounds)
    if "languages" in parts:
        languages.compare(given.rounds)
    if "launcher" in parts:
        launcher.compare(given.rounds)


def tried(measured: Callable[..., T], *arguments: Any) -> list[T]:
    """What was measured, or nothing where a program failed: the others are still worth their time."""
    try:
        return [measured(*arguments)]
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
        return []


if __name__ == "__main__":
    main()
