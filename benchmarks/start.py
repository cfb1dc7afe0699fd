"""From the call to the first step, cold and warm; what a restart takes, and what warm starts cost and leave.

    make bench T=start

The seed network, from Python and from R, on 2 and 4 workers, by MPI and by the ring: a cold run, then a warm
one, and so on. Each language is one session, whose fork server has come before the first run. Seconds are
medians.
"""

from __future__ import annotations

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import report
from processes import HERE, python, run

WORKERS = (2, 4)
CARRIERS = ("mpi", "ring")
#: Seconds that a warm start with 2 workers may take, and how much faster it has to be than a cold one.
SECONDS = {"Python": 2.0, "R": 2.5}
FACTOR = 4.0
#: Seconds from the end of a worker that is killed to the next step.
RESTART = 3.0
ROW = 30  # fits in a row
#: The parts of a start, each up to an event of the first worker.
PARTS = {
    "started": "process", "ready": "join the others", "train_begin": "model and data",
    "epoch_begin": "build", "batch": "trace, first step",
}  # fmt: skip
LIMIT = 3600.0


class Case(NamedTuple):
    """One kind of run."""

    workers: int
    communication: str
    warm: bool


CASES = [Case(*case) for case in itertools.product(WORKERS, CARRIERS, (False, True))]
PROGRAMS = {
    "Python": python("start_fits.py"),
    "R": ["Rscript", str(HERE / "start_fits.R")],
}


def parts_of(folder: Path) -> dict[str, float]:
    """The seconds of each part of the start whose run is in ``folder``."""
    lines = (folder / "run/workers/0/events.jsonl").read_text().splitlines()
    times: dict[str, float] = {}
    for event in map(json.loads, lines):
        times.setdefault(event["event"], event["time"])
    moments = [float((folder / "called").read_text()), *(times[name] for name in PARTS)]
    return dict(zip(PARTS, (after - before for before, after in itertools.pairwise(moments)), strict=True))


def starts(language: str, rounds: int) -> dict[Case, list[dict[str, float]]]:
    """The parts of the starts of each case."""
    found: dict[Case, list[dict[str, float]]] = {case: [] for case in CASES}
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
        folders = [(case, Path(name) / f"{number}-{place}")
                   for number in range(rounds) for place, case in enumerate(CASES)]  # fmt: skip
        todo = []
        for case, folder in folders:
            folder.mkdir()
            todo.append({"folder": str(folder), **case._asdict()})
        Path(name, "cases.json").write_text(json.dumps(todo))
        run([[*PROGRAMS[language], str(Path(name, "cases.json"))]], timeout=LIMIT)
        for case, folder in folders:
            found[case].append(parts_of(folder))
    return found


def compare(rounds: int) -> None:
    """Print the tables and the bars."""
    all_starts = {language: starts(language, rounds) for language in PROGRAMS}
    medians = {
        language: {
            case: report.median([sum(parts.values()) for parts in runs]) for case, runs in cases.items()
        }
        for language, cases in all_starts.items()
    }
    bars = []
    print(f"Seconds from the call to the first step, medians of {rounds} alternating runs\n")
    print(f"{'':8}{'workers':>8}{'':>6}{'cold':>8}{'warm':>8}{'times':>8}")
    for language, seconds in medians.items():
        for workers, carrier in itertools.product(WORKERS, CARRIERS):
            cold, warm = (seconds[Case(workers, carrier, start)] for start in (False, True))
            print(f"{language:8}{workers:8}{carrier:>6}{cold:8.2f}{warm:8.2f}{cold / warm:8.1f}")
            what = f"{language}, {workers} workers, {carrier}"
            bars.append(report.judged(cold / warm, FACTOR, f"{what}: cold / warm"))
            if workers == min(WORKERS):
                bars.append(report.within(warm, SECONDS[language], f"{what}: seconds of a warm start"))
    print_parts(all_starts)
    bars += print_rest()
    print("\n".join(["", "Bars", *bars]), flush=True)


def print_parts(all_starts: dict[str, dict[Case, list[dict[str, float]]]]) -> None:
    """Print where the seconds of warm starts go."""
    print("\nWhere the seconds of a warm start go, 2 workers\n")
    print(f"{'':8}{'':>6}" + "".join(f"{title:>19}" for title in PARTS.values()))
    for language, cases in all_starts.items():
        for carrier in CARRIERS:
            runs = cases[Case(min(WORKERS), carrier, True)]
            seconds = (report.median([parts[name] for parts in runs]) for name in PARTS)
            print(f"{language:8}{carrier:>6}" + "".join(f"{each:19.2f}" for each in seconds))


def print_rest() -> list[str]:
    """Print what a restart takes, and what fits in a row cost and leave; their bars."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
        (said,) = run([python("start_rest.py", name, ROW)], timeout=LIMIT)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    mb = found["mb"]
    print(f"\nFrom the end of a killed worker to the next step: {found['restart']:.2f} s")
    print(f"Memory of the fork server: {mb['server']:.0f} MB; of 4 workers, shared pages counted once: "
          f"{mb['cold']:.0f} MB cold, {mb['warm']:.0f} MB warm")  # fmt: skip
    print(f"{ROW} warm fits in a row: the memory of the caller changed by {found['growth']:+.1f} MB "
          f"from the tenth to the last; left: {', '.join(found['left']) or 'nothing'}")  # fmt: skip
    return [
        report.within(found["restart"], RESTART, "seconds from a killed worker to the next step"),
        report.within(float(len(found["left"])), 0.0, f"what {ROW} fits left"),
    ]
