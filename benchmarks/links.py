"""Workers on hosts that links join: the bytes of a step, and MPI beside the ring.

The hosts are network namespaces of this machine, each with a core and shared memory of its own.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import measure
from networks import CNNS, NETWORKS
from processes import CORES, HERE, Failed, fits, run
from report import bars, in_turn, judged, machine, median, number, reasons, show, table, within

import tfdistr

sys.path.append(str(HERE.parent / "tools" / "lab"))
import hosts

CARRIERS = ("mpi", "ring")
SHARED = "/dev/shm"
PORT = 12_345
#: Workers, and rates of the links, of the second table; half of the workers are on each of two hosts.
WORKERS, GBITS = (2, 4), (1, 10)
EPOCHS = 3  # the first one is not measured
#: How many times as fast as the ring MPI has to be, and how many seconds later its first step may come.
TIMES = {"seed": 1.7, "wide": 2.5}
LATER = 0.5
#: Network, workers, and the steps of an epoch, of the first table.
COUNTED = (("seed", 2, 20), ("seed", 4, 20), ("seed", 8, 20), ("wide", 2, 4))

V = TypeVar("V")


class Result(NamedTuple):
    """Examples per second by network, and seconds from the start to the end of the first step."""

    examples: dict[str, float]
    start: float


@contextlib.contextmanager
def hosts_of(names: str) -> Iterator[hosts.Hosts]:
    """Hosts as long as the block runs."""
    if reason := hosts.missing():
        sys.exit(f"This part is not possible here: {reason}.")
    cores = {name: str(CORES[place % len(CORES)]) for place, name in enumerate(names)}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfdistr-bench-")))
        yield stack.enter_context(hosts.hosts(names, folder, own=[Path(SHARED)], cores=cores))


def trained(
    made: hosts.Hosts, names: str, networks: Sequence[str], read: Callable[[dict[str, Path]], V], **call: Any
) -> V:
    """Train networks one after another, on the host of each worker; what ``read`` finds in their folders."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
        folders = {network: Path(name, network) for network in networks}
        for folder in folders.values():
            folder.mkdir()
        calls = [{"folder": str(each), "network": network, **call} for network, each in folders.items()]
        addresses = [f"{made.address(host)}:{PORT + i}" for i, host in enumerate(names)]
        commands = [[*made.inside(host), *fits(calls)] for host in names]
        run(commands, tfdistr.tf_config(worker=addresses).environments())
        for network, folder in folders.items():
            if (saved := len(measure.saved(folder))) != len(names):
                raise Failed(f"{network}: {saved} processes saved a measurement", "not all measured")
        return read(folders)


def scaling(rounds: int) -> None:
    """Print what a worker (the one that sends most) sends in a step, against the least; one round."""
    rows = []
    for carrier, (network, workers, steps) in itertools.product(CARRIERS, COUNTED):
        names = "abcdefgh"[:workers]

        def most(folders: dict[str, Path], network: str = network) -> float:
            return max(worker["sent"][1] for worker in measure.saved(folders[network]))

        with hosts_of(names) as made:
            sent = trained(made, names, [network], most, steps=steps, communication=carrier) / steps
        least = 2 * (workers - 1) / workers * NETWORKS[network].weights * 4
        cells = [f"{sent / 1e6:.3f}", f"{least / 1e6:.3f}", f"{sent / least:.3f}"]
        rows.append([carrier, network, workers, *cells])
    head = ["", "network", "workers", "MB", "least: 2(N-1)/N x gradients", "ratio"]
    show(
        "Bytes that a worker sends in a training step through tfdistr, counted at its interface",
        table(head, rows, left=(0, 1)),
    )


def speed_of(made: hosts.Hosts, workers: int, gbit: int, carrier: str) -> Result:
    """Train the CNNs over links of this rate."""
    made.limit(gbit * 1000)
    began = time.time()

    def read(folders: dict[str, Path]) -> Result:
        first = max(float(file.read_text()) for file in folders[CNNS[0]].glob("*.first"))
        speeds = {
            network: measure.examples_per_second(folder, NETWORKS[network].examples)
            for network, folder in folders.items()
        }
        return Result(speeds, first - began)

    names = "".join(name * (workers // 2) for name in "ab")
    return trained(made, names, CNNS, read, epochs=EPOCHS, callback="first", communication=carrier)


def carriers(rounds: int) -> None:
    """Print the speed and the start of MPI beside those of the ring, and the bars."""
    failures: dict[Any, str] = {}
    with hosts_of("ab") as made:
        cases = itertools.product(WORKERS, GBITS, CARRIERS)
        found = in_turn(rounds, {case: partial(speed_of, made, *case) for case in cases}, failures)
    paragraphs, verdicts = [], []
    for network in CNNS:
        rows = []
        for workers, gbit in itertools.product(WORKERS, GBITS):
            mpi, ring = (
                median([each.examples[network] for each in found[workers, gbit, carrier]])
                for carrier in CARRIERS
            )
            rows.append([str(workers), gbit, number(mpi), number(ring), number(mpi / ring, ".2f")])
            what = f"{network}: {workers} workers, {gbit} Gbit/s: MPI / ring"
            verdicts.append(judged(mpi / ring, TIMES[network], what))
        head = ["workers", "Gbit/s", "MPI", "ring", f"times ({TIMES[network]:g})"]
        paragraphs.append(f"{NETWORKS[network].title}: examples/s\n{table(head, rows, left=())}")
    rows = []
    for workers in WORKERS:
        mpi, ring = (
            median([each.start for gbit in GBITS for each in found[workers, gbit, carrier]])
            for carrier in CARRIERS
        )
        rows.append([str(workers), *(number(seconds, ".2f") for seconds in (mpi, ring, mpi - ring))])
        what = f"{workers} workers: seconds that the first step over MPI comes later"
        verdicts.append(within(mpi - ring, LATER, what))
    starts = "Seconds from the start of the workers to the first step of the first network, cold\n"
    paragraphs.append(starts + table(["workers", "MPI", "ring", "later"], rows, left=()))
    shared = "" if len(CORES) >= 2 else " Both hosts have the same core."
    show(
        machine(),
        f"Two hosts, each a network namespace with a core; medians of {rounds} alternating rounds.\n"
        f"With 4 workers, two share the core of their host.{shared}",
        *paragraphs,
        reasons(failures),
        bars(verdicts),
    )
