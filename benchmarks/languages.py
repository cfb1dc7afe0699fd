"""What R costs: calls of functions, a callback for each batch, and training, beside the same from Python.

    make bench T=languages

The calls are rows of tests/cross, with the arguments made before. Programs of the two languages take turns. A
call counts with the median of its repetitions, a program with the median of its runs.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import measure
import report
from networks import NETWORKS
from processes import HERE, Command, python, run

CROSS = HERE.parent / "tests" / "cross"
#: Of the training from R, as a part of Python's.
FACTOR = 0.98
BATCHES = 400  # of an epoch with callbacks
LIMIT = 900.0

Times = dict[str, dict[str, list[float]]]  # by name, then by language


def programs(name: str, *arguments: object) -> dict[str, Command]:
    """The programs of one name, in each language."""
    words = [str(argument) for argument in arguments]
    return {
        "Python": python(f"{name}.py", *words),
        "R": ["Rscript", "--no-init-file", str(HERE / f"{name}.R"), *words],
    }


def rows() -> list[dict[str, Any]]:
    """A row of tests/cross for each function that can be called in one process."""
    found: dict[str, dict[str, Any]] = {}
    for name in ("values", "jobs"):
        for row in json.loads((CROSS / "rows" / f"{name}.json").read_text()):
            if "local_cluster" not in json.dumps(row.get("arguments", {})) and "error" not in row:
                found.setdefault(row["call"], row)
    return list(found.values())


def turns(name: str, rounds: int, *arguments: object) -> Times:
    """The seconds that the programs of one name have written, by what and language."""
    found: Times = {}
    for _ in range(rounds):
        for language, command in programs(name, *arguments).items():
            with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
                out = Path(folder, "seconds.json")
                run([[*command, str(out)]], [{"CROSS": str(CROSS)}], timeout=LIMIT)
                for what, seconds in json.loads(out.read_text()).items():
                    found.setdefault(what, {}).setdefault(language, []).append(seconds)
    return found


def table(title: str, times: Times, first: str) -> None:
    """Print the medians of both languages, and their difference."""
    print(f"\n{title}\n")
    print(f"{first:34}{'Python':>12}{'R':>12}{'R - Python':>12}{'R / Python':>12}")
    for what, languages in times.items():
        of_python, of_r = (1000 * statistics.median(languages[language]) for language in ("Python", "R"))
        print(f"{what:34}{of_python:12.3f}{of_r:12.3f}{of_r - of_python:12.3f}{of_r / of_python:12.1f}")


def compare(rounds: int) -> None:
    """Print the three tables and the bars."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        given = Path(folder, "rows.json")
        given.write_text(json.dumps(rows()))
        calls = turns("languages_calls", rounds, given)
    table("Milliseconds of a call", calls, "function")
    batches = turns("languages_callbacks", rounds, BATCHES)
    table(f"Milliseconds of a batch, epochs of {BATCHES}", batches, "callback")
    print("\n".join(["", "Bars", *compare_training(rounds)]), flush=True)


def compare_training(rounds: int) -> Iterable[str]:
    """Print images per second of the seed network; return the bars."""
    speeds: dict[int, dict[str, list[float]]] = {1: {"Python": [], "R": []}, 2: {"Python": [], "R": []}}
    for _ in range(rounds):
        for workers, languages in speeds.items():
            for language, found in languages.items():
                found.append(examples_per_second(language, workers))
    print("\nSeed CNN: images per second\n")
    print(f"{'workers':>8}{'Python':>12}{'R':>12}{'R / Python':>12}")
    bars = []
    for workers, languages in speeds.items():
        of_python, of_r = (statistics.median(found) for found in languages.values())
        print(f"{workers:8}{of_python:12,.0f}{of_r:12,.0f}{of_r / of_python:12.3f}")
        bars.append(report.judged(of_r / of_python, FACTOR, f"R / Python, seed CNN, {workers} workers"))
    return bars


def examples_per_second(language: str, workers: int) -> float:
    """Train the seed network once."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        commands = {
            "Python": python("fit.py", "seed", folder, "--workers", workers, "--communication", "mpi"),
            "R": ["Rscript", str(HERE / "fit.R"), "seed", folder, str(workers), "mpi"],
        }
        run([commands[language]])
        return measure.examples_per_second(folder, NETWORKS["seed"].examples)
