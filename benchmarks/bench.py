"""Examples per second of tfdistr and of its rivals, and other measurements.

    make bench
    make bench T='seed allreduce' ROUNDS=5     # parts: networks, allreduce, and those of OTHER_PARTS
    make bench T=wide SYSTEMS=MPI ROUNDS=15    # those with this in their name
    make bench ROUNDS=1 STEPS=2                # two steps an epoch, to see what runs

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
from pathlib import Path
from typing import Any, TypeVar

import checkpoint
import cores
import data
import decode
import job
import languages
import launcher
import measure
import memory
import on_engines
import parameter_servers
import report
import start
import virtual
from networks import NETWORKS, amount
from processes import Failed, exit_when_terminated, mpiexec, pinned, python, run, tf_config, torchrun
from systems import OTHERS, SYSTEMS, System

PARTS = (*NETWORKS, report.ALL_REDUCE)
#: Parts with tables of their own, by name.
OTHER_PARTS: dict[str, Callable[[int], None]] = {
    "cores": cores.compare,
    "job": job.compare,
    "memory": memory.compare,
    "data": data.compare,
    "decode": decode.compare,
    "checkpoint": checkpoint.compare,
    "start": start.compare,
    "virtual": virtual.compare,
    "languages": languages.compare,
    "launcher": launcher.compare,
    "engines": on_engines.compare,
    "ps": parameter_servers.compare,
}

T = TypeVar("T")


def train(system: System, network: str, steps: int | None) -> report.Run:
    """Let a system train a network once."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
        folder = Path(name)
        options = ("--steps", steps) if steps else ()
        run(system.commands(network, folder, *options), system.environments())
        found = measure.saved(folder)
        if len(found) != system.processes:
            raise Failed(f"{system.name}: {len(found)} processes saved a measurement", "not all measured")
        examples = amount(network, system.shares, steps)[0] * system.runs / system.processes
        return report.Run(
            examples=sum(examples / report.median(process["epochs"][1:]) for process in found),
            peak_mb=max(process["peak_mb"] for process in found),
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
    parser.add_argument("--steps", type=int, help="train each network for two epochs of so many steps")
    given = parser.parse_args()
    parts = given.parts or PARTS
    trained: report.Trained = {
        name: {
            system.name: [] for system in SYSTEMS if given.systems in system.name and name in system.networks
        }
        for name in NETWORKS
        if name in parts
    }
    failures: report.Failures = {}
    reduced: report.Reduced = {engine: [] for engine in report.ENGINES if report.ALL_REDUCE in parts}
    for number in range(given.rounds):
        print(f"round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
        for network, runs in trained.items():
            for system in SYSTEMS:
                if system.name in runs:
                    at = (network, system.name)
                    runs[system.name] += tried(failures, at, train, system, network, given.steps)
        for engine in reduced:
            reduced[engine] += tried(failures, (report.ALL_REDUCE, engine), all_reduce, engine)
    if trained or reduced:
        print(report.report(trained, failures, reduced, given.rounds), flush=True)
    for name, compare in OTHER_PARTS.items():
        if name in parts:
            compare(given.rounds)


def tried(
    failures: report.Failures, at: tuple[str, str], measured: Callable[..., T], *arguments: Any
) -> list[T]:
    """What was measured, or nothing where a program failed: the others are still worth their time."""
    try:
        return [measured(*arguments)]
    except Failed as error:
        print(error, file=sys.stderr, flush=True)
        failures[at] = error.reason
        return []


if __name__ == "__main__":
    main()
