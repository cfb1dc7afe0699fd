"""Seconds from the call to the result of a small job: two workers, the seed network, two epochs of ten steps.

    make bench T=job

A program counts from its start to its end, with its imports. In a session, which has imported tfdistr, the
call of a fit counts: with new processes (cold), and with workers that are forks of a server (warm).
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import report
from processes import Failed, python, run
from systems import DDP, KERAS, KERAS_JAX, KERAS_TORCH, MPI, MPI_R, MWMS, SYSTEMS, System

STEPS = 10
PROGRAMS = (KERAS, MWMS, DDP, KERAS_TORCH, KERAS_JAX, MPI, MPI_R)
IN_SESSION = {"cold": "tfdistr, MPI, call in a session", "warm": "tfdistr, MPI, warm call"}


def compare(rounds: int) -> None:
    """Print the table."""
    systems = [system for system in SYSTEMS if system.name in PROGRAMS]
    seconds: dict[str, list[float]] = {system.name: [] for system in systems}
    seconds |= {name: [] for name in IN_SESSION.values()}
    failures: dict[str, str] = {}
    for _ in range(rounds):
        for system in systems:
            try:
                seconds[system.name].append(of_program(system))
            except Failed as error:
                failures[system.name] = error.reason
        for kind, found in in_session().items():
            seconds[IN_SESSION[kind]].append(found)
    print(report.machine())
    print(f"\nSeconds from the call to the result of {2 * STEPS} steps, medians of {rounds} rounds\n")
    print(f"{'':34}{'seconds':>8}{'(min to max)':>18}")
    for name, found in seconds.items():
        cell = f"{report.median(found):8.2f}" if found else f"{'-':>8}"
        spread = f"({min(found):.2f} to {max(found):.2f})" if found else ""
        print(f"{name:34}{cell}{spread:>18}".rstrip())
    for name, why in failures.items():
        print(f"-: {name}: {why}")


def of_program(system: System) -> float:
    """Seconds that the programs of a system take."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        commands = system.commands("seed", Path(folder), "--steps", STEPS)
        environments = system.environments()
        began = time.monotonic()
        run(commands, environments)
        return time.monotonic() - began


def in_session() -> dict[str, float]:
    """Seconds of a cold and of a warm call in a session."""
    (printed,) = run([python("job_fits.py", STEPS)])
    found: dict[str, float] = json.loads(printed.splitlines()[-1])
    return found
