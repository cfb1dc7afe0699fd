"""From the call to the first step, cold and warm; what a restart takes, and what warm starts cost and leave.

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

import measure
from processes import fits, python, run
from report import bars, judged, median, show, table, within

WORKERS = (2, 4)
CARRIERS = ("mpi", "ring")
LANGUAGES = ("Python", "R")
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
Starts = dict[Case, list[dict[str, float]]]  # the seconds of each part of each start


def parts_of(folder: Path) -> dict[str, float]:
    """The seconds of each part of the start whose run is in ``folder``."""
    times: dict[str, float] = {}
    for event in measure.events(folder):
        times.setdefault(event["event"], event["time"])
    moments = [float((folder / "called").read_text()), *(times[name] for name in PARTS)]
    return dict(zip(PARTS, (after - before for before, after in itertools.pairwise(moments)), strict=True))


def starts(language: str, rounds: int) -> Starts:
    """The parts of the starts of each case."""
    cases = [Case(1, "ring", True), *(CASES * rounds)]  # the first starts the server
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
        folders = [Path(name, str(number)) for number in range(len(cases))]
        for folder in folders:
            folder.mkdir()
        options = {"epochs": 1, "examples": 2_560}
        calls = [
            {"folder": str(folder), **options, **case._asdict()}
            for folder, case in zip(folders, cases, strict=True)
        ]
        run([fits(calls, language)], timeout=LIMIT)
        found: Starts = {case: [] for case in CASES}
        for case, folder in list(zip(cases, folders, strict=True))[1:]:
            found[case].append(parts_of(folder))
        return found


def compare(rounds: int) -> None:
    """Print the tables and the bars."""
    of = {language: starts(language, rounds) for language in LANGUAGES}
    seconds, parts, verdicts = [], [], []
    for language, workers, carrier in itertools.product(LANGUAGES, WORKERS, CARRIERS):
        cold, warm = (
            median([sum(each.values()) for each in of[language][Case(workers, carrier, kind)]])
            for kind in (False, True)
        )
        seconds.append([language, workers, carrier, f"{cold:.2f}", f"{warm:.2f}", f"{cold / warm:.1f}"])
        what = f"{language}, {workers} workers, {carrier}"
        verdicts.append(judged(cold / warm, FACTOR, f"{what}: cold / warm"))
        if workers == min(WORKERS):
            verdicts.append(within(warm, SECONDS[language], f"{what}: seconds of a warm start"))
            runs = of[language][Case(workers, carrier, True)]
            parts.append(
                [language, carrier, *(f"{median([each[name] for each in runs]):.2f}" for name in PARTS)]
            )
    rest, more = compare_rest()
    show(
        f"Seconds from the call to the first step, medians of {rounds} alternating runs",
        table(["", "workers", "", "cold", "warm", "times"], seconds),
        f"Where the seconds of a warm start go, {min(WORKERS)} workers",
        table(["", "", *PARTS.values()], parts),
        rest,
        bars([*verdicts, *more]),
    )


def compare_rest() -> tuple[str, list[str]]:
    """What a restart takes, and what fits in a row cost and leave; their bars."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
        (said,) = run([python("start_rest.py", name, ROW)], timeout=LIMIT)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    mb = found["mb"]
    text = (
        f"From the end of a killed worker to the next step: {found['restart']:.2f} s\n"
        f"Memory of the fork server: {mb['server']:.0f} MB; of 4 workers, shared pages counted once: "
        f"{mb['cold']:.0f} MB cold, {mb['warm']:.0f} MB warm\n"
        f"{ROW} warm fits in a row: the memory of the caller changed by {found['growth']:+.1f} MB "
        f"from the tenth to the last; left: {', '.join(found['left']) or 'nothing'}"
    )
    return text, [
        within(found["restart"], RESTART, "seconds from a killed worker to the next step"),
        within(float(len(found["left"])), 0.0, f"what {ROW} fits left"),
    ]
