"""Shows that many workers give what one worker gives: trains each case both ways.

Usage: run.py [--workers 2 3] [--cases NAME...] [--way WAY] [--communication auto|ring|nccl|mpi|mirrored]
       [--virtual COUNT] [--set cases|cases_of_nets|cases_of_ordinary|zoo_cases]

With "mirrored" the workers are devices of one process. With virtual workers, the bound of all cases is 0.

Prints a line for each case, way and number of workers. Exit status 1 if a case misses its bound, is warned of
although it is ordinary, or fails.
"""

import argparse
import importlib
import os
import signal
import sys
import time
from itertools import chain
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "zoo"))

from case import CASES, WAYS
from matrix import Row, run_matrix, table

SETS = ("cases", "cases_of_nets", "cases_of_ordinary", "zoo_cases")
KINDS = ("ok", "MISSED", "FAILED", "WARNED", "said", "refused", "known")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 3])
    parser.add_argument("--cases", nargs="*", default=[], help="parts of names; by default all")
    parser.add_argument("--way", nargs="*", choices=WAYS, help="by default both")
    carriers = ("auto", "ring", "nccl", "mpi", "mirrored")
    parser.add_argument("--communication", choices=carriers, default="auto")
    parser.add_argument("--virtual", type=int, help="number of virtual workers")
    parser.add_argument("--set", choices=SETS, default="cases", help="module of the cases")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds that a case may take")
    options = parser.parse_args()
    # An end by a signal takes the workers and the temporary folder along.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    importlib.import_module(options.set)
    names = chosen(options.cases)
    if not names:
        parser.error(f"no case has this in its name: {' '.join(options.cases)}")
    if options.virtual:  # the shares of virtual workers are a matter of their own
        names = [name for name in names if CASES[name].expects == "equal"]
    kind = "not_virtual" if options.virtual else "only_virtual"
    names = [name for name in names if not getattr(CASES[name], kind)]
    ways = options.way or WAYS
    if options.communication == "mirrored":
        names = [name for name in names if not CASES[name].not_mirrored]
    rows = run_matrix(
        [(way, name) for name in names for way in CASES[name].ways if way in ways],
        options.workers,
        communication=options.communication,
        limit=options.limit,
        virtual=options.virtual,
        cases=options.set,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    print(table(rows))
    for name in names:
        if CASES[name].drop_in_only:
            print(f"{name} with the drop-in strategy only: {CASES[name].drop_in_only}")
        if CASES[name].known:
            print(f"{name} is known to fail: {CASES[name].known}")
    for row in rows:
        if row.said and not row.well:
            said = "\n".join(f"{kind}: {text}" for kind, text in row.said)
            print(f"\n{row.case}, {row.way}, {row.workers} workers, said:\n{said}")
        if row.failure and not row.well:
            print(f"\n{row.case}, {row.way}, {row.workers} workers:\n{row.failure.details}")
    print(f"\n{summary(rows)} in {time.monotonic() - began:.0f} s")
    return exit_status(rows)


def chosen(parts: list[str]) -> list[str]:
    """Cases by parts of their names, or all."""
    found = ([name for name in CASES if part in name] for part in parts)
    return list(dict.fromkeys(chain.from_iterable(found))) if parts else list(CASES)


def summary(rows: list[Row]) -> str:
    counts = {kind: sum(row.status.startswith(kind) for row in rows) for kind in KINDS}
    counts = {kind: count for kind, count in counts.items() if count or kind in KINDS[:3]}
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def exit_status(rows: list[Row]) -> int:
    return int(not all(row.well for row in rows))


if __name__ == "__main__":
    sys.exit(main())
