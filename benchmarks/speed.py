"""Examples per second of tfdistr and of its rivals, and the bars for them."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import measure
from networks import NETWORKS, PER_WORKER_BATCH, amount
from processes import Failed, run
from report import bars, in_turn, judged, machine, median, number, reasons, show, table
from systems import ALONE, DDP, KERAS, KERAS_ALL, KERAS_JAX, MPI, MPI_R, MWMS, ONE, RIVALS, SYSTEMS, System

BEST = "the best rival"
#: The columns of the summary.
COLUMNS = {MPI: "tfdistr, MPI", DDP: "DDP", KERAS_ALL: "Keras", KERAS_JAX: "on JAX", MWMS: "MWMS"}


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
    Bar(MPI, 2.5, DDP, ("seed",)),
    Bar(MPI, 2.0, DDP, ("wide",)),
    Bar(MPI, 1.0, BEST),
    Bar(MPI, 0.8, ALONE),
    Bar(MPI_R, 0.98, MPI),
    Bar(ONE, 1.5, KERAS),
)


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


def compare(rounds: int, networks: Sequence[str], systems: str, steps: int | None) -> None:
    """Print the tables and bars of the networks.

    Args:
        rounds: Number of runs.
        networks: The names of the networks.
        systems: Only those with this in their name.
        steps: Train each network for two epochs of so many steps.
    """
    failures: dict[tuple[str, str], str] = {}
    trained = in_turn(rounds, {
        (network, system.name): partial(train, system, network, steps)
        for network in networks for system in SYSTEMS
        if systems in system.name and network in system.networks
    }, failures)  # fmt: skip
    by_network = {
        network: {system: runs for (of, system), runs in trained.items() if of == network}
        for network in networks
    }
    speeds = {network: speeds_of(systems) for network, systems in by_network.items()}
    paragraphs = [summary(speeds)] if len(networks) > 1 else []
    judgements: list[str] = []
    for network, runs in by_network.items():
        why = reasons({system: reason for (of, system), reason in failures.items() if of == network})
        paragraphs.append(f"{network_table(network, runs)}\n{why}".rstrip())
        judgements += [
            verdict(network, bar, speeds[network]) for bar in BARS
            if network in bar.networks and {bar.system, bar.than} <= runs.keys() | speeds[network].keys()
        ]  # fmt: skip
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


def network_table(network: str, systems: Mapping[str, Sequence[Run]]) -> str:
    """The speed of each system, its range, its start and its memory."""
    described = NETWORKS[network]
    rows = []
    for system, runs in systems.items():
        found = [run.examples for run in runs]
        starts = [run.start for run in runs if run.start is not None]
        rows.append([
            system, number(median(found)), f"({min(found):,.0f} to {max(found):,.0f})" if found else "",
            f"{median(starts):.1f} s" if starts else "",
            f"{median([run.peak_mb for run in runs]):,.0f} MB" if runs else "",
        ])  # fmt: skip
    title = (
        f"{described.title}: {described.weights:,} weights ({described.weights * 4 / 1e6:.1f} MB), "
        f"{PER_WORKER_BATCH} examples a worker"
    )
    head = ["", "examples/s", "(min to max)", "first step", "peak"]
    return f"{title}\n{table(head, rows)}"


def verdict(network: str, bar: Bar, speeds: Mapping[str, float]) -> str:
    """The line of a bar."""
    than = f"{BEST}, {best_of(speeds)}" if bar.than == BEST else bar.than
    return judged(ratio(speeds, bar.system, bar.than), bar.factor, f"{network}: {bar.system} / {than}")


def ratio(speeds: Mapping[str, float], one: str, other: str) -> float:
    """How many times as fast one is as the other; not a number, which meets no bar, if one of them failed."""
    return speeds.get(one, float("nan")) / speeds.get(other, float("nan"))
