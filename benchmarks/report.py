"""The tables of ``make bench``, and the bars that tfdistr has to meet."""

from __future__ import annotations

import math
import os
import platform
import re
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sized
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from networks import NETWORKS, PER_WORKER_BATCH
from processes import QUIET
from systems import ALONE, DDP, KERAS, KERAS_ALL, KERAS_JAX, MPI, MPI_R, MWMS, ONE, RIVALS

median = statistics.median

ALL_REDUCE = "allreduce"
BEST = "the best rival"
#: What the last column calls those that others are compared with.
SHORT = {KERAS: "Keras", MWMS: "stock", DDP: "DDP", BEST: "best rival", ALONE: "alone", MPI: "Python"}

#: Name of each engine of all_reduce.py in the table.
ENGINES = {"gloo": "PyTorch, gloo", "ring": "tfdistr, ring", "mpi": "tfdistr, MPI", "mpi4py": "mpi4py alone"}


@dataclass(frozen=True)
class Run:
    """What one run of a system gave.

    Attributes:
        examples: Examples per second.
        peak_mb: The peak memory of its largest process.
        start: Seconds from the call to the first step, where they are known.
    """

    examples: float
    peak_mb: float
    start: float | None


Trained = dict[str, dict[str, list[Run]]]  # by network and system
Failures = dict[tuple[str, str], str]  # the last reason, by network (or ALL_REDUCE) and system
Reduced = dict[str, list[dict[int, float]]]  # by engine; milliseconds by bytes


@dataclass(frozen=True)
class Bar:
    """``system`` has to be at least ``factor`` times as fast as ``than``, on these networks."""

    system: str
    factor: float
    than: str
    networks: tuple[str, ...] = tuple(NETWORKS)


BARS = (
    Bar(MPI, 3.0, MWMS, ("seed",)),
    Bar(MPI, 2.0, DDP, ("seed",)),
    Bar(MPI, 2.5, DDP, ("seed",)),
    Bar(MPI, 1.9, DDP, ("wide",)),
    Bar(MPI, 2.0, DDP, ("wide",)),
    Bar(MPI, 1.0, BEST),
    Bar(MPI, 0.8, ALONE),
    Bar(MPI_R, 0.98, MPI),
    Bar(ONE, 1.5, KERAS),
)
#: Times gloo's speed, for tensors of so many bytes, through tfdistr.
REDUCE_BAR, REDUCE_BYTES = 3.0, 10_000_000


def report(trained: Trained, failures: Failures, reduced: Reduced, rounds: int) -> str:
    """All tables and bars as text."""
    lines = [machine(), f"Medians of {rounds} alternating runs; each worker on a core of its own."]
    if len(trained) > 1:
        lines += ["", *summary(trained)]
    bars: list[str] = []
    for network, systems in trained.items():
        speeds = {system: median([run.examples for run in runs]) for system, runs in systems.items() if runs}
        rivals = {system: speed for system, speed in speeds.items() if system in RIVALS}
        if rivals:
            speeds[BEST] = max(rivals.values())
        lines += ["", *network_table(network, systems, speeds)]
        lines += reasons(network, systems, failures, rounds)
        best = max(rivals, key=lambda system: rivals[system], default="")
        bars += [
            verdict(network, bar, speeds, best)
            for bar in BARS
            if network in bar.networks and {bar.system, bar.than} <= systems.keys() | speeds.keys()
        ]
    if reduced:
        ms = {engine: medians(runs) for engine, runs in reduced.items() if runs}
        lines += ["", *all_reduce_table(ms), *reasons(ALL_REDUCE, reduced, failures, rounds)]
        speeds = {engine: 1 / found[REDUCE_BYTES] for engine, found in ms.items()}
        words = f"all-reduce of {size_name(REDUCE_BYTES)}: {ENGINES['mpi']} / {ENGINES['gloo']}"
        bars.append(judged(ratio(speeds, "mpi", "gloo"), REDUCE_BAR, words))
    return "\n".join([*lines, "", "Bars", *bars])


#: The columns of the summary.
COLUMNS = {MPI: "tfdistr, MPI", DDP: "DDP", KERAS_ALL: "Keras", KERAS_JAX: "on JAX", MWMS: "MWMS"}


def summary(trained: Trained) -> list[str]:
    """One row for each network: the systems that users know, and the best of all rivals."""
    names = "".join(f"{name:>{max(9, len(name) + 2)}}" for name in COLUMNS.values())
    lines = ["Examples per second of two workers", f"{'':12}{names}   times the best rival"]
    for network, systems in trained.items():
        speeds = {system: median([run.examples for run in runs]) for system, runs in systems.items() if runs}
        rivals = [system for system in speeds if system in RIVALS]
        cells = "".join(
            f"{f'{speeds[system]:,.0f}' if system in speeds else '-':>{max(9, len(name) + 2)}}"
            for system, name in COLUMNS.items()
        )
        best = max(rivals, key=lambda system: speeds[system], default="")
        times = f"{ratio(speeds, MPI, best):.2f}  {best}" if best else ""
        lines.append(f"{network:12}{cells}   {times}".rstrip())
    return lines


def network_table(network: str, systems: dict[str, list[Run]], speeds: dict[str, float]) -> list[str]:
    described = NETWORKS[network]
    lines = [
        f"{described.title}: {described.weights:,} weights ({described.weights * 4 / 1e6:.1f} MB), "
        f"{PER_WORKER_BATCH} examples a worker",
        f"{'':24}{'examples/s':>11}{'(min to max)':>20}{'first step':>12}{'peak':>9}   times (bar)",
    ]
    for system, runs in systems.items():
        if not runs:
            lines.append(f"{system:24}{'-':>11}")
            continue
        found = [run.examples for run in runs]
        starts = [run.start for run in runs if run.start is not None]
        spread = f"({min(found):,.0f} to {max(found):,.0f})"
        start = f"{median(starts):.1f} s" if starts else ""
        peak = f"{median([run.peak_mb for run in runs]):,.0f} MB"
        ratios = ", ".join(against(network, bar, speeds) for bar in bars_of(system) if bar.than in speeds)
        lines.append(
            f"{system:24}{speeds[system]:11,.0f}{spread:>20}{start:>12}{peak:>9}   {ratios}".rstrip()
        )
    return lines


def reasons(what: str, found: Mapping[str, Sized], failures: Failures, rounds: int) -> list[str]:
    """Why a row has a dash, or is the median of fewer runs."""
    return [
        f"{f'{len(found[system])} of {rounds} runs:' if found[system] else '-'} {system}: {why}"
        for (of, system), why in failures.items()
        if of == what
    ]


def bars_of(system: str) -> list[Bar]:
    """One bar for each of what ``system`` is compared with."""
    return list({bar.than: bar for bar in BARS if bar.system == system}.values())


def against(network: str, than: Bar, speeds: dict[str, float]) -> str:
    times = f"{SHORT[than.than]} {ratio(speeds, than.system, than.than):.2f}"
    same = [bar for bar in BARS if (bar.system, bar.than) == (than.system, than.than)]
    factors = ", ".join(f"{bar.factor:g}" for bar in same if network in bar.networks)
    return f"{times} ({factors})" if factors else times


def verdict(network: str, bar: Bar, speeds: dict[str, float], best: str) -> str:
    than = f"{BEST}, {best}" if bar.than == BEST else bar.than
    return judged(ratio(speeds, bar.system, bar.than), bar.factor, f"{network}: {bar.system} / {than}")


def ratio(speeds: dict[str, float], one: str, other: str) -> float:
    """How many times as fast one is as the other; not a number, which meets no bar, if one of them failed."""
    return speeds.get(one, math.nan) / speeds.get(other, math.nan)


def judged(times: float, factor: float, words: str) -> str:
    return f"{'ok' if times >= factor else 'MISSED':8}{times:5.2f} >= {factor:4.2f}   {words}"


def within(value: float, bar: float, words: str) -> str:
    """A line that says whether ``value`` is at most the bar."""
    return f"{'ok' if value <= bar else 'MISSED':6} {value:6.2f} <= {bar:.2f}   {words}"


def medians(runs: list[dict[int, float]]) -> dict[int, float]:
    return {size: median([run[size] for run in runs]) for size in runs[0]}


def all_reduce_table(ms: dict[str, dict[int, float]]) -> list[str]:
    sizes = list(next(iter(ms.values()), {}))
    lines = ["The all-reduce alone, two workers: ms (times gloo's speed)"]
    lines.append(f"{'':22}" + "".join(f"{size_name(size):>19}" for size in sizes))
    for engine in ms:
        speeds = ({engine: 1 / found[size] for engine, found in ms.items()} for size in sizes)
        cells = (f"{1 / s[engine]:.3f} ({ratio(s, engine, 'gloo'):.2f})" for s in speeds)
        lines.append(f"{ENGINES[engine]:22}" + "".join(f"{cell:>19}" for cell in cells))
    return lines


def size_name(size: int) -> str:
    return f"{size / 1e6:g} MB" if size >= 1e5 else f"{size} B"


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
