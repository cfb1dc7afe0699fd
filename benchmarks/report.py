"""The tables of ``make bench``, and the bars that tfdistr has to meet."""

from __future__ import annotations

import math
import os
import platform
import re
import statistics
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from networks import NETWORKS, PER_WORKER_BATCH

median = statistics.median

KERAS = "Keras 3 fit, stock"
MWMS = "tf-keras, stock MWMS"
DDP = "PyTorch DDP, gloo"
ONE = "tfdistr, one worker"
RING = "tfdistr, ring"
MPI = "tfdistr, MPI"
MPI_R = "tfdistr, MPI, from R"
ALONE = "tfdistr, two alone"

#: What the last column calls those that others are compared with.
SHORT = {KERAS: "Keras", MWMS: "stock", DDP: "DDP", ALONE: "alone", MPI: "Python"}

#: Name of each engine of all_reduce.py in the table.
ENGINES = {"gloo": "PyTorch, gloo", "ring": "tfdistr, ring", "mpi": "tfdistr, MPI", "mpi4py": "mpi4py alone"}


@dataclass(frozen=True)
class Run:
    """What one run of a system gave; ``start``: seconds from the call to the first step."""

    images: float
    peak_mb: float
    start: float | None


Trained = dict[str, dict[str, list[Run]]]  # by network and system
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
    Bar(MPI, 2.5, DDP, ("seed",)),
    Bar(MPI, 2.0, DDP, ("wide",)),
    Bar(MPI, 0.8, ALONE),
    Bar(MPI_R, 0.98, MPI),
    Bar(ONE, 1.5, KERAS),
)
#: Times gloo's speed, for tensors of so many bytes, through tfdistr.
REDUCE_BAR, REDUCE_BYTES = 3.0, 10_000_000


def report(trained: Trained, reduced: Reduced, rounds: int) -> str:
    """All tables and bars as text."""
    lines = [machine(), f"Medians of {rounds} alternating runs; each worker on a core of its own."]
    bars: list[str] = []
    for network, systems in trained.items():
        images = {system: median([run.images for run in runs]) for system, runs in systems.items() if runs}
        lines += ["", *network_table(network, systems, images)]
        bars += [
            verdict(network, bar, images)
            for bar in BARS
            if network in bar.networks and {bar.system, bar.than} <= systems.keys()
        ]
    if reduced:
        ms = {engine: medians(runs) for engine, runs in reduced.items() if runs}
        lines += ["", *all_reduce_table(ms)]
        speeds = {engine: 1 / found[REDUCE_BYTES] for engine, found in ms.items()}
        words = f"all-reduce of {size_name(REDUCE_BYTES)}: {ENGINES['mpi']} / {ENGINES['gloo']}"
        bars.append(judged(ratio(speeds, "mpi", "gloo"), REDUCE_BAR, words))
    return "\n".join([*lines, "", "Bars", *bars])


def network_table(network: str, systems: dict[str, list[Run]], images: dict[str, float]) -> list[str]:
    described = NETWORKS[network]
    lines = [
        f"{described.title}: {described.weights:,} weights, {described.weights * 4 / 1e6:.1f} MB "
        f"of gradients, {PER_WORKER_BATCH} images a worker",
        f"{'':22}{'images/s':>9}{'(min to max)':>20}{'first step':>12}{'peak':>9}   times (bar)",
    ]
    for system, runs in systems.items():
        if not runs:
            lines.append(f"{system:22}{'failed':>9}")
            continue
        speeds = [run.images for run in runs]
        starts = [run.start for run in runs if run.start is not None]
        spread = f"({min(speeds):,.0f} to {max(speeds):,.0f})"
        start = f"{median(starts):.1f} s" if starts else ""
        peak = f"{median([run.peak_mb for run in runs]):,.0f} MB"
        ratios = ", ".join(against(network, bar, images) for bar in bars_of(system) if bar.than in systems)
        lines.append(f"{system:22}{images[system]:9,.0f}{spread:>20}{start:>12}{peak:>9}   {ratios}".rstrip())
    return lines


def bars_of(system: str) -> list[Bar]:
    """One bar for each of what ``system`` is compared with."""
    return list({bar.than: bar for bar in BARS if bar.system == system}.values())


def against(network: str, than: Bar, images: dict[str, float]) -> str:
    times = f"{SHORT[than.than]} {ratio(images, than.system, than.than):.2f}"
    same = [bar for bar in BARS if (bar.system, bar.than) == (than.system, than.than)]
    return times + "".join(f" ({bar.factor:g})" for bar in same if network in bar.networks)


def verdict(network: str, bar: Bar, images: dict[str, float]) -> str:
    return judged(ratio(images, bar.system, bar.than), bar.factor, f"{network}: {bar.system} / {bar.than}")


def ratio(speeds: dict[str, float], one: str, other: str) -> float:
    """How many times as fast one is as the other; not a number, which meets no bar, if one of them failed."""
    return speeds.get(one, math.nan) / speeds.get(other, math.nan)


def judged(times: float, factor: float, words: str) -> str:
    return f"{'ok' if times >= factor else 'MISSED':8}{times:5.2f} >= {factor:4.2f}   {words}"


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
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("tensorflow", "keras", "mpi4py", "mpich"))
    name = names[0] if names else platform.machine()
    system = f"Linux {platform.release()}; Python {platform.python_version()}, {packages}"
    return f"{name}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB; {system}"
