"""What the benchmarks print: tables, bars, the machine. And how they measure: in turn, again and again."""

from __future__ import annotations

import math
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from processes import QUIET, Failed

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def in_turn(
    rounds: int, cases: Mapping[K, Callable[[], V]], failures: dict[K, str] | None = None
) -> dict[K, list[V]]:
    """Measure all cases in turn, then again, so that a slow minute of the machine hits them alike.

    Args:
        rounds: How often.
        cases: What measures each case.
        failures: Gets the reason why a case failed, whose others are still worth their time; by default a
            failure ends the benchmark.
    """
    found: dict[K, list[V]] = {case: [] for case in cases}
    for number in range(rounds):
        if cases:
            print(f"round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for case, measure in cases.items():
            try:
                found[case].append(measure())
            except Failed as error:
                if failures is None:
                    raise
                print(error, file=sys.stderr, flush=True)
                failures[case] = error.reason
    return found


def median(values: Sequence[float]) -> float:
    """The median; not a number, which meets no bar, if there are no values."""
    return statistics.median(values) if values else math.nan


def number(value: float, form: str = ",.0f") -> str:
    """A number of a table, or a dash if it was not measured."""
    return "-" if math.isnan(value) else format(value, form)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], left: Sequence[int] = (0,)) -> str:
    """The rows below their head; the columns ``left`` are aligned there, the others on the right."""
    cells = [[str(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(
            cell.ljust(width) if place in left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def show(*paragraphs: str) -> None:
    """Print paragraphs, with empty lines between them."""
    print("\n\n".join(filter(None, paragraphs)), flush=True)


def bars(lines: Sequence[str]) -> str:
    """The paragraph of the bars."""
    return "\n".join(["Bars", *lines])


def judged(times: float, factor: float, words: str) -> str:
    """A line that says whether ``times`` is at least the bar."""
    return f"{'ok' if times >= factor else 'MISSED':8}{times:5.2f} >= {factor:4.2f}   {words}"


def within(value: float, bar: float, words: str) -> str:
    """A line that says whether ``value`` is at most the bar."""
    return f"{'ok' if value <= bar else 'MISSED':6} {value:6.2f} <= {bar:.2f}   {words}"


def reasons(failures: Mapping[object, str]) -> str:
    """Why cases have a dash, or fewer runs than others."""
    return "\n".join(f"-: {case}: {why}" for case, why in failures.items())


def machine() -> str:
    """The machine and what is installed, in a line."""
    described = Path("/proc/cpuinfo").read_text()
    names = re.findall(r"model name\s*: (.*)", described)
    flags = set(" ".join(re.findall(r"flags\s*: (.*)", described)).split())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("tensorflow", "keras", "mpi4py", "mpich"))
    name = names[0] if names else platform.machine()
    wide = "with AVX-512" if "avx512f" in flags else "without AVX-512"
    cores = f"{len(os.sched_getaffinity(0))} cores"
    system = f"Linux {platform.release()}; Python {platform.python_version()}"
    return f"{name} {wide}, {cores}, {memory:.0f} GiB; {system}, {packages}, oneDNN {one_dnn()}"


def one_dnn() -> str:
    """Whether TensorFlow uses oneDNN here: "on" or "off", by the processor and TF_ENABLE_ONEDNN_OPTS."""
    code = "from tensorflow.python.util import _pywrap_util_port as port; print(port.IsMklEnabled())"
    answer = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | QUIET, capture_output=True, text=True
    )
    return {"True": "on", "False": "off"}.get(answer.stdout.strip(), "unknown")
