"""Plants faults into runs, and examines each on one process: is it found, with its step, layer and row?

Usage: run.py [--cases WORDS...]

Prints a line for each fault and each healthy pair. Exit status 1 if one is not found as it was planted.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["TF_NUM_INTRAOP_THREADS"] = "1"  # a replay of virtual workers needs it
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from case import Case, Found
from cases import CASES
from cost import cost
from examine import Runs, examine
from pairs import PAIRS
from report import table

HEAD = ("fault", "model", "workers", "by", "step", "layer", "row", "found", "")


def row(case: Case, found: Found | None) -> list[object]:
    """Return the line of a case."""
    workers = f"{case.workers} of {case.virtual}" if case.virtual else case.workers
    if found is None:
        return [case.fault, case.net, workers, case.by, "", "", "", "", "FAILED"]
    reason = (found.reason or "no difference") + (f", run {found.odd} does not repeat" if found.odd else "")
    cells = ("-" if value is None else value for value in (found.step, found.layer, found.row))
    return [case.fault, case.net, workers, case.by, *cells, reason, "" if found == case.finds else "MISSED"]


def made(case: Case, runs: Runs) -> list[object]:
    """Return the line of a case, which is run now."""
    try:
        found = examine(case, runs)
    except Exception:  # the other cases are still of use
        traceback.print_exc()
        found = None
    must = "" if found == case.finds else f", where it must be {case.finds}"
    print(f"{case.fault}, {case.net}, {case.workers}: {found}{must}", file=sys.stderr, flush=True)
    return row(case, found)


def chosen(words: list[str]) -> dict[str, list[Case]]:
    """Return the cases by their kinds: all, or those with one of some words in the name of the fault."""
    kinds = {**CASES, "healthy pairs": PAIRS}
    return {kind: [case for case in kinds[kind] if not words or any(word in case.fault for word in words)]
            for kind in kinds}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", nargs="*", default=[], help="parts of the names of faults; by default all")
    words = parser.parse_args().cases
    asked = {kind: cases for kind, cases in chosen(words).items() if cases}
    if not asked:
        parser.error(f"no fault has {' or '.join(words)} in its name")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # takes the temporary folder along
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tfdistr-") as folder:
        runs = Runs(Path(folder))
        lines = {kind: [made(case, runs) for case in cases] for kind, cases in asked.items()}
    right = {kind: sum(not line[-1] for line in rows) for kind, rows in lines.items()}
    counts = [(kind, len(rows), right[kind]) for kind, rows in lines.items()]
    print(table(("kind", "cases", "as they must be"), counts))
    for kind, rows in lines.items():
        print(f"\n{kind.capitalize()}\n{table(HEAD, rows, range(9))}")
    if not words:
        print(f"\nProcessor time of a step\n{cost()}")
    print(f"\n{time.monotonic() - began:.0f} s")
    return int(any(right[kind] < len(rows) for kind, rows in lines.items()))


if __name__ == "__main__":
    sys.exit(main())
