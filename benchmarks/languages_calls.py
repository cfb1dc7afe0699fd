"""The seconds of a call of each function, from Python; see languages.py. Arguments: ROWS OUT."""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

SECONDS = 1.0  # for the repetitions of a call, after a first one
MOST = 200


def seconds_of(row: dict[str, Any]) -> float:
    """The median of a call, without its first."""
    environment = row.get("environment", {})
    os.environ.update(environment)
    arguments = in_python.evaluate_arguments(row.get("arguments", {}))
    in_python.call(row["call"], arguments)
    found: list[float] = []
    end = time.perf_counter() + SECONDS
    while not found or (len(found) < MOST and time.perf_counter() < end):
        began = time.perf_counter()
        in_python.call(row["call"], arguments)
        found.append(time.perf_counter() - began)
    for name in environment:
        del os.environ[name]
    return statistics.median(found)


if __name__ == "__main__":
    sys.path.insert(0, os.environ["CROSS"])
    import in_python

    rows = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps({row["call"]: seconds_of(row) for row in rows}))
