"""Runs cases on clusters of several sizes, and compares what came of them with one worker's results."""

import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from case import CASES, WAYS
from said import Said

from tfdistr.errors import PEER_MARK, WorkerFailedError
from tfdistr.same_fit.difference import difference

sys.path.append(str(Path(__file__).parents[1] / "python" / "helpers"))
from clusters import run_cluster

WORKER = Path(__file__).with_name("worker.py")
START_LIMIT = 120.0  # seconds
GROUPS = ("weights", "history", "evaluate", "predict")

Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Failure:
    """Why a case has no results: in one line, and all that is known.

    Attributes:
        alone: Whether one worker has failed.
    """

    reason: str
    details: str
    alone: bool = False

    @property
    def refusal(self) -> str:
        """Message of the error by which tfdistr has refused the case; empty if another error ended it."""
        found = re.search(r"^tfdistr\.errors\.(?!WorkerFailed)\w+: (.*)", self.details, re.S | re.M)
        return found[1].strip() if found and not self.alone else ""


@dataclass(frozen=True)
class Trained:
    """The values of each worker, and what tfdistr has said on any of them."""

    values: list[Values]
    said: tuple[Said, ...] = ()


Outcome = Trained | Failure


@dataclass(frozen=True)
class Row:
    """One case on some workers, next to one worker.

    Attributes:
        case: Name of the case.
        way: "drop-in" or "distributed_fit".
        workers: Number of workers.
        differences: Largest difference of weights, history, evaluate and predict, by these names;
            values above 1 are compared relative to their size.
        failure: Why there are no differences.
        virtual: Number of virtual workers; None without them.
        said: The warnings and progress lines of the workers, each once.
    """

    case: str
    way: str
    workers: int
    differences: dict[str, float] = field(default_factory=dict)
    worst: str = ""
    failure: Failure | None = None
    virtual: int | None = None
    said: tuple[Said, ...] = ()

    def bound_of(self, group: str) -> float:
        """The bound of "weights", "history", "evaluate" or "predict"."""
        return 0.0 if self.virtual else CASES[self.case].bound_of(group)

    @property
    def status(self) -> str:
        """"ok", "said: ..." or "refused: ...", as the case expects, or "known: ...".

        Else "MISSED" (with the values that differ most), "WARNED" (with the warning) or "FAILED" (with
        the reason).
        """
        found = self._found
        if not CASES[self.case].known:
            return found
        return "FAILED (no longer, remove `known`)" if found == "ok" else f"known: {found}"

    @property
    def well(self) -> bool:
        """Whether the status is one that the case expects."""
        return self.status.startswith(("ok", "said", "refused", "known"))

    @property
    def _found(self) -> str:
        case = CASES[self.case]
        if self.failure:
            refusal = self.failure.refusal
            expected = refusal and case.allows("refused") and case.names_reason(refusal)
            return f"refused: {_first_line(refusal)}" if expected else f"FAILED ({self.failure.reason})"
        missed = any(value > self.bound_of(group) for group, value in self.differences.items())
        warned = [said.text for said in self.said if said.is_warning]
        if not missed and case.quiet and warned:
            return f"WARNED ({_first_line(warned[0])})"
        if not missed and case.allows("equal"):
            return "ok"
        reasons = [said.text for said in self.said if case.names_reason(said.text)]
        if reasons and case.allows("said"):
            return f"said: {_first_line(reasons[0])}"
        return f"MISSED ({self.worst if missed else 'equal, and not said'})"


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def run_matrix(
    pairs: Sequence[tuple[str, str]],
    workers: Iterable[int] = (2, 3),
    *,
    only: Mapping[int, Sequence[tuple[str, str]]] | None = None,
    communication: str = "auto",
    limit: float = 120.0,
    virtual: int | None = None,
    cases: str = "cases",
    say: Callable[[str], None] = lambda line: None,
) -> list[Row]:
    """Run pairs of a way and a case with one worker and with each number of ``workers``.

    Args:
        pairs: What to run.
        workers: Numbers of workers to compare with one.
        only: The pairs to run on a number of workers, where these are not all.
        communication: What carries the collectives: "auto", "ring", "nccl", "mpi", or "mirrored", where the
            workers are devices of one process.
        limit: Seconds that a case may take.
        virtual: Number of virtual workers.
        cases: The module that has the cases.
        say: Called with a line about what is being run.
    """
    importlib.import_module(cases)
    say(f"1 worker: {len(pairs)} cases")
    expected = _run(pairs, 1, communication, limit, virtual, cases)
    rows = []
    for count in workers:
        for way in WAYS:
            compared = [pair for pair in (only or {}).get(count, pairs) if pair[0] == way]
            own = [pair for pair in compared if not isinstance(expected[pair], Failure)]
            say(f"{count} workers, {way}: {len(own)} cases")
            received = _run(own, count, communication, limit, virtual, cases)
            rows += [_row(pair, count, expected[pair], received.get(pair), virtual) for pair in compared]
    order = {pair: number for number, pair in enumerate(pairs)}
    return sorted(rows, key=lambda row: (order[row.way, row.case], row.workers))


def _run(
    pairs: Sequence[tuple[str, str]], workers: int, communication: str, limit: float, virtual: int | None,
    cases: str,
) -> dict[tuple[str, str], Outcome]:  # fmt: skip
    """Every worker's results; after a failure the cases that are left run in fresh processes."""
    outcomes: dict[tuple[str, str], Outcome] = {}
    left = list(pairs)
    while left:
        with tempfile.TemporaryDirectory(prefix="tfdistr-equality-") as temporary:
            processes, carried = workers, communication
            if communication == "mirrored":  # one worker is the reference, without devices of its own
                processes, carried = 1, "auto" if workers == 1 else f"mirrored:{workers}"
            folders = [Path(temporary) / str(index) for index in range(processes)]
            for folder in folders:
                folder.mkdir()
            names = [":".join(pair) for pair in left]
            given = [carried, str(limit), str(virtual or 0), cases, *names]
            arguments = [[str(folder), *given] for folder in folders]
            try:
                # Each case has a limit of its own, in the worker.
                longest = START_LIMIT + limit * len(left)
                mpi = communication == "mpi" and workers > 1
                ended = run_cluster(str(WORKER), processes, *arguments, timeout=longest, mpi=mpi)
                outputs = [f"{worker.output}\nexit status {worker.status}" for worker in ended]
                all_well = not any(worker.status for worker in ended)
            except subprocess.TimeoutExpired as error:
                outputs, all_well = [str(error)], False
            for name in names:
                files = [folder / f"{name}.npz" for folder in folders]
                pair = left.pop(0)
                if not all(file.exists() for file in files):
                    outcomes[pair] = _failure([file.with_suffix(".error") for file in files], outputs)
                    break
                outcomes[pair] = _trained(files)
            else:
                if not all_well:
                    outcomes[pair] = Failure("a process did not end well after it", "\n".join(outputs))
    return outcomes


def _trained(files: Sequence[Path]) -> Trained:
    said = (Said(*each) for file in files for each in json.loads(file.with_suffix(".said").read_text()))
    return Trained([_load(file) for file in files], tuple(dict.fromkeys(said)))


def _load(path: Path) -> Values:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def _failure(files: Sequence[Path], outputs: Sequence[str]) -> Failure:
    """What the first worker that failed by itself tells; the others fail because of it."""
    told = {file: file.read_text().strip() for file in files if file.exists() and file.stat().st_size}
    if not told:
        lines = [line for line in outputs[0].splitlines() if line.strip()]
        return Failure(" / ".join(lines[-2:]), "\n".join(outputs))

    def relayed(text: str) -> bool:
        return PEER_MARK in text or WorkerFailedError.__name__ in text

    first = min(told, key=lambda file: (relayed(told[file]), file.stat().st_mtime_ns))
    lines = [line for line in told[first].splitlines() if line[:1].strip()]  # TensorFlow ends with details
    timed_out = lines[0].startswith("Timeout")
    return Failure(f"worker {first.parent.name}: {lines[0] if timed_out else lines[-1]}", told[first])


def _row(
    pair: tuple[str, str], workers: int, expected: Outcome, received: Outcome | None, virtual: int | None
) -> Row:
    way, name = pair
    for outcome, who in ((expected, "alone, "), (received, "")):
        if isinstance(outcome, Failure):
            failure = Failure(who + outcome.reason, outcome.details, alone=bool(who))
            return Row(name, way, workers, failure=failure, virtual=virtual)
    compared = received.values
    # Workers that draw their own random numbers agree with each other.
    one = compared[0] if CASES[name].random and not virtual else expected.values[0]
    if not virtual:  # the states of optimizers have other sizes than weights, and no bounds of their own
        compared = [{k: v for k, v in values.items() if "optimizer" not in k} for values in compared]
        one = {key: value for key, value in one.items() if "optimizer" not in key}
    by_name: dict[str, float] = {}
    for values in compared:
        for key in one.keys() | values.keys():
            by_name[key] = max(by_name.get(key, 0.0), difference(one.get(key), values.get(key)))
    differences = {
        group: max(found)
        for group in GROUPS
        if (found := [value for key, value in by_name.items() if key.startswith(group)])
    }
    worst = max(by_name, key=by_name.get)
    return Row(name, way, workers, differences, worst=worst, virtual=virtual, said=received.said)


def table(rows: Sequence[Row]) -> str:
    """One line for each row, under a line of headings."""
    head = ["case", "way", "workers", *GROUPS, "bound", "result"]
    lines = [
        [row.case, row.way, str(row.workers), *(_number(row.differences.get(group)) for group in GROUPS),
         _bounds(row), row.status]
        for row in rows
    ]  # fmt: skip
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in [head, *lines]
    )


def _bounds(row: Row) -> str:
    if row.virtual:
        return "0"
    case = CASES[row.case]
    own = f", predict {case.predict_bound:.0e}" if case.predict_bound else ""
    return f"{case.bound:.0e}{own}"


def _number(value: float | None) -> str:
    return "-" if value is None else "0" if value == 0 else f"{value:.1e}"
