"""Examples per second of tfdistr and of its rivals, the all-reduce alone, and the bars for both."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import measure
from networks import NETWORKS, PER_WORKER_BATCH, amount
from processes import Failed, mpiexec, pinned, python, run, tf_config, torchrun
from report import bars, in_turn, judged, machine, median, number, show, table
from systems import (
    ALONE,
    DDP,
    KERAS,
    KERAS_ALL,
    KERAS_JAX,
    MPI,
    MPI_R,
    MWMS,
    ONE,
    OTHERS,
    RIVALS,
    SYSTEMS,
    System,
)  # fmt: skip

ALL_REDUCE = "allreduce"
BEST = "the best rival"
#: What the last column calls those that others are compared with.
SHORT = {KERAS: "Keras", MWMS: "stock", DDP: "DDP", BEST: "best rival", ALONE: "alone", MPI: "Python"}
#: The columns of the summary.
COLUMNS = {MPI: "tfdistr, MPI", DDP: "DDP", KERAS_ALL: "Keras", KERAS_JAX: "on JAX", MWMS: "MWMS"}
#: Name of each engine of all_reduce.py in the table.
CLUSTERS = {"gloo": "PyTorch, gloo", "ring": "tfdistr, ring", "mpi": "tfdistr, MPI", "mpi4py": "mpi4py alone"}


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


def train(system: System, network: str, steps: int | None) -> Run:
    """Let a system train a network once."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
        folder = Path(name)
        run(system.commands(network, folder, steps), system.environments())
        found = measure.saved(folder)
        if len(found) != system.processes:
            raise Failed(f"{system.name}: {len(found)} processes saved a measurement", "not all measured")
        examples = amount(network, system.shares, steps)[0] * system.runs / system.processes
        return Run(
            examples=sum(examples / median(process["epochs"][1:]) for process in found),
            peak_mb=max(process["peak_mb"] for process in found),
            start=seconds_to_first_step(folder),
        )


def seconds_to_first_step(folder: Path) -> float | None:
    """From the call to the end of the first step, as tfdistr's chief reported."""
    if not (folder / "run").exists():
        return None
    first = next(event["time"] for event in measure.events(folder) if event["event"] == "batch")
    return first - float((folder / "called").read_text())


def all_reduce(engine: str) -> dict[int, float]:
    """Milliseconds by the bytes of the tensor, of the slower of two workers."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        command = python("all_reduce.py", engine, folder, of=OTHERS if engine == "gloo" else sys.executable)
        if engine in ("mpi", "mpi4py"):
            run([mpiexec(command, 2)])
        else:
            environments = torchrun(2) if engine == "gloo" else tf_config(2)
            run([pinned(command, worker) for worker in range(2)], environments)
        first, second = measure.saved(folder)
    return {int(size): max(found["ms"], second[size]["ms"]) for size, found in first.items()}


def compare(rounds: int, parts: Sequence[str], systems: str, steps: int | None) -> None:
    """Print the tables and bars of the networks, and of the all-reduce.

    Args:
        rounds: Number of runs.
        parts: Networks, and ALL_REDUCE.
        systems: Only those with this in their name.
        steps: Train each network for two epochs of so many steps.
    """
    networks = [name for name in NETWORKS if name in parts]
    failures: dict[tuple[str, str], str] = {}
    trained = in_turn(rounds, {
        (network, system.name): partial(train, system, network, steps)
        for network in networks for system in SYSTEMS
        if systems in system.name and network in system.networks
    }, failures)  # fmt: skip
    engines = CLUSTERS if ALL_REDUCE in parts else ()
    reduced = in_turn(rounds, {(ALL_REDUCE, each): partial(all_reduce, each) for each in engines}, failures)
    by_network = {
        network: {system: runs for (of, system), runs in trained.items() if of == network}
        for network in networks
    }
    speeds = {network: speeds_of(systems) for network, systems in by_network.items()}
    paragraphs = [summary(speeds)] if len(networks) > 1 else []
    judgements: list[str] = []
    for network, runs in by_network.items():
        paragraphs.append(network_table(network, runs, speeds[network]) + why(network, failures))
        judgements += [
            verdict(network, bar, speeds[network]) for bar in BARS
            if network in bar.networks and {bar.system, bar.than} <= runs.keys() | speeds[network].keys()
        ]  # fmt: skip
    ms = {
        engine: {size: median([run[size] for run in runs]) for size in runs[0]}
        for (_, engine), runs in reduced.items() if runs
    }  # fmt: skip
    if engines:
        paragraphs.append(all_reduce_table(ms) + why(ALL_REDUCE, failures))
        of_size = {engine: 1 / found[REDUCE_BYTES] for engine, found in ms.items()}
        words = f"all-reduce of {size_name(REDUCE_BYTES)}: {CLUSTERS['mpi']} / {CLUSTERS['gloo']}"
        judgements.append(judged(ratio(of_size, "mpi", "gloo"), REDUCE_BAR, words))
    head = f"{machine()}\nMedians of {rounds} alternating runs; each worker on a core of its own."
    show(head, *paragraphs, bars(judgements))


def speeds_of(systems: Mapping[str, Sequence[Run]]) -> dict[str, float]:
    """The median of each system that ran, and of the best rival."""
    speeds = {system: median([run.examples for run in runs]) for system, runs in systems.items() if runs}
    if best := best_of(speeds):
        speeds[BEST] = speeds[best]
    return speeds


def best_of(speeds: Mapping[str, float]) -> str:
    """The best rival's name, or none."""
    return max((system for system in speeds if system in RIVALS), key=lambda each: speeds[each], default="")


def summary(speeds: Mapping[str, Mapping[str, float]]) -> str:
    """One row for each network: the systems that users know, and the best of all rivals."""
    rows = [
        [network, *(number(of.get(system, float("nan"))) for system in COLUMNS),
         number(ratio(of, MPI, BEST), ".2f"), best_of(of)]
        for network, of in speeds.items()
    ]  # fmt: skip
    return "Examples per second of two workers\n" + table(
        ["", *COLUMNS.values(), "times", "the best rival"], rows, left=(0, len(COLUMNS) + 2)
    )


def network_table(network: str, systems: Mapping[str, Sequence[Run]], speeds: Mapping[str, float]) -> str:
    """The speed of each system, its range, its start and its memory, and how it compares."""
    described = NETWORKS[network]
    rows = []
    for system, runs in systems.items():
        found = [run.examples for run in runs]
        starts = [run.start for run in runs if run.start is not None]
        compared = {bar.than: bar for bar in BARS if bar.system == system and bar.than in speeds}
        rows.append([
            system, number(median(found)), f"({min(found):,.0f} to {max(found):,.0f})" if found else "",
            f"{median(starts):.1f} s" if starts else "",
            f"{median([run.peak_mb for run in runs]):,.0f} MB" if runs else "",
            ", ".join(against(network, bar, speeds) for bar in compared.values()),
        ])  # fmt: skip
    title = (
        f"{described.title}: {described.weights:,} weights ({described.weights * 4 / 1e6:.1f} MB), "
        f"{PER_WORKER_BATCH} examples a worker"
    )
    head = ["", "examples/s", "(min to max)", "first step", "peak", "times (bar)"]
    return f"{title}\n{table(head, rows, left=(0, 5))}"


def why(part: str, failures: Mapping[tuple[str, str], str]) -> str:
    """Why a row has a dash, or is the median of fewer runs."""
    return "".join(f"\n-: {system}: {reason}" for (of, system), reason in failures.items() if of == part)


def against(network: str, than: Bar, speeds: Mapping[str, float]) -> str:
    """How many times as fast a system is, and its bars."""
    times = f"{SHORT[than.than]} {ratio(speeds, than.system, than.than):.2f}"
    same = [bar for bar in BARS if (bar.system, bar.than) == (than.system, than.than)]
    factors = ", ".join(f"{bar.factor:g}" for bar in same if network in bar.networks)
    return f"{times} ({factors})" if factors else times


def verdict(network: str, bar: Bar, speeds: Mapping[str, float]) -> str:
    """The line of a bar."""
    than = f"{BEST}, {best_of(speeds)}" if bar.than == BEST else bar.than
    return judged(ratio(speeds, bar.system, bar.than), bar.factor, f"{network}: {bar.system} / {than}")


def ratio(speeds: Mapping[str, float], one: str, other: str) -> float:
    """How many times as fast one is as the other; not a number, which meets no bar, if one of them failed."""
    return speeds.get(one, float("nan")) / speeds.get(other, float("nan"))


def all_reduce_table(ms: Mapping[str, Mapping[int, float]]) -> str:
    """The milliseconds of each engine by the size of the tensor."""
    sizes = list(next(iter(ms.values()), {}))
    rows = [
        [CLUSTERS[engine], *(f"{of[size]:.3f} ({ms['gloo'][size] / of[size]:.2f})" if "gloo" in ms
                            else f"{of[size]:.3f}" for size in sizes)]
        for engine, of in ms.items()
    ]  # fmt: skip
    return "The all-reduce alone, two workers: ms (times gloo's speed)\n" + table(
        ["", *map(size_name, sizes)], rows
    )


def size_name(size: int) -> str:
    """A number of bytes, for people."""
    return f"{size / 1e6:g} MB" if size >= 1e5 else f"{size} B"
