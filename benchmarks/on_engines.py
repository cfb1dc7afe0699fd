"""MPI beside the ring on each engine that starts workers: speed, and seconds until the first step.

    make bench T=engines ROUNDS=1

The two hosts are network namespaces of this machine. Each has a core and shared memory of its own, and a
link whose rate is limited. A pod has its own address and shared memory, and shares the link and the core of
its node. Jobs over MPI and with the ring alternate.
"""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import measure
import report
from networks import CNNS, NETWORKS
from processes import CORES, HERE, Failed, python, run

import tfdistr
from tfdistr.cli.kubernetes.manifests import kubernetes_manifests

sys.path.append(str(HERE.parent / "tools" / "lab"))
import hosts
import netns
import pods
import slurm_lab

CARRIERS = ("mpi", "ring")
WORKERS = (2, 4)
GBITS = (1, 10)
EPOCHS = 3  # the first one is not measured
PROGRAM = "on_engines_fits.py"
NAMES = "ab"
SHARED = "/dev/shm"
PORT = 12_345
#: How many times as fast as the ring MPI has to be, and how many seconds later its first step may come.
TIMES = {"seed": 1.7, "wide": 2.5}
LATER = 0.5


class Case(NamedTuple):
    """What is compared over MPI and with the ring."""

    engine: str
    workers: int
    gbit: int

    def __str__(self) -> str:
        return f"{self.engine}, {self.workers} workers, {self.gbit} Gbit/s"


@dataclass(frozen=True)
class Job:
    """A job that trains the networks one after another.

    Attributes:
        workers: The number of workers, half of them on each host.
        communication: "mpi" or "ring".
        gbit: The rate of the links.
        folder: Where the workers save what they measure.
        networks: The networks.
    """

    workers: int
    communication: str
    gbit: int
    folder: Path
    networks: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        """The arguments of the program."""
        return [str(self.folder), self.communication, str(EPOCHS), *self.networks]

    @property
    def on_hosts(self) -> list[str]:
        """The host of each worker."""
        return [name for name in NAMES for _ in range(self.workers // len(NAMES))]


class Result(NamedTuple):
    """Examples per second by network, and seconds from the call to the end of the first step."""

    examples: dict[str, float]
    start: float


#: Starts the workers of a job, and returns when they have ended.
Start = Callable[[Job], object]
Results = dict[tuple[Case, str], list[Result]]  # by case and carrier
Reasons = dict[str, str]  # by engine or case: why it was not measured


def by_hand(made: hosts.Hosts, job: Job) -> None:
    """Start each worker with its TF_CONFIG."""
    addresses = [f"{made.address(name)}:{PORT + i}" for i, name in enumerate(job.on_hosts)]
    commands = [[*made.inside(name), *python(PROGRAM, *job.arguments)] for name in job.on_hosts]
    run(commands, tfdistr.tf_config(worker=addresses).environments())


def by_ssh(made: hosts.Hosts, job: Job) -> None:
    """Let a program on this machine start the workers."""
    where = ["--hosts", *map(made.address, NAMES), "--per-host", job.workers // len(NAMES)]
    run([python(PROGRAM, *job.arguments, *where, "--ssh", made.ssh)])


def by_slurm(lab: slurm_lab.Lab, job: Job) -> None:
    """Let srun start the workers, without an MPI of Slurm."""
    srun = ["srun", f"--nodes={len(NAMES)}", f"--ntasks={job.workers}", "--mpi=none"]
    # Not the other variables of the lab: they choose the network of MPI.
    run([[*srun, *python(PROGRAM, *job.arguments)]], [{"SLURM_CONF": lab.env["SLURM_CONF"]}])


def node(made: hosts.Hosts, name: str) -> slurm_lab.Node:
    """A Slurm node on a host. It needs /sys/fs/cgroup, which is not among the mounts of the host."""
    own = ["unshare", "--mount", "sh", "-c", f'mount -t tmpfs none {SHARED} && exec "$@"', "sh"]
    return slurm_lab.Node(made.address(name), [*made.inside(name, ["net"]), *own])


def by_pods(job: Job) -> None:
    """Start the pods of a Job."""
    manifests = kubernetes_manifests(str(HERE / PROGRAM), job.workers, arguments=job.arguments)
    volumes = job.folder / "pods"
    volumes.mkdir()
    with pods.pods(manifests, volumes) as made:
        half = job.workers // len(NAMES)
        indices = list(map(str, range(job.workers)))
        made.namespaces.put_on_nodes([indices[:half], indices[half:]])
        made.namespaces.limit(job.gbit * 1000)
        calls = [made.call(index) for index in range(job.workers)]
        commands = [
            ["taskset", "--cpu-list", cores()[name], *command]
            for name, (command, _) in zip(job.on_hosts, calls, strict=True)
        ]
        called(job)
        run(commands, [environment for _, environment in calls])


def cores() -> dict[str, str]:
    """The core of each host."""
    return {name: str(CORES[i % len(CORES)]) for i, name in enumerate(NAMES)}


def called(job: Job) -> None:
    """Write down when the engine is called."""
    (job.folder / "called").write_text(str(time.time()))


def on(made: hosts.Hosts, start: Start) -> Start:
    """``start`` on hosts whose links have the rate of the job."""

    def limited(job: Job) -> None:
        made.limit(job.gbit * 1000)
        called(job)
        start(job)

    return limited


@contextlib.contextmanager
def engines(reasons: Reasons) -> Iterator[dict[str, Start]]:
    """The engines that are there, by name. The reasons say why others are not."""
    found: dict[str, Start] = {}
    with contextlib.ExitStack() as stack:
        if (missing := hosts.missing()) is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tfdistr-bench-")))
            made = stack.enter_context(hosts.hosts(NAMES, folder, own=[Path(SHARED)], cores=cores()))
            found["TF_CONFIG"] = on(made, lambda job: by_hand(made, job))
            found["ssh"] = on(made, lambda job: by_ssh(made, job))
            if (no_slurm := slurm_lab.missing()) is None:
                nodes = {f"node{name}": node(made, name) for name in NAMES}
                lab = stack.enter_context(slurm_lab.lab(nodes, made.here))
                found["Slurm"] = on(made, lambda job: by_slurm(lab, job))
            else:
                reasons["Slurm"] = no_slurm
        else:
            reasons |= dict.fromkeys(("TF_CONFIG", "ssh", "Slurm"), missing)
        if (no_pods := netns.missing()) is None:
            found["pods"] = by_pods
        else:
            reasons["pods"] = no_pods
        if importlib.util.find_spec("ray") is None:
            reasons["Ray"] = "not installed"
        else:
            reasons["Ray"] = "this benchmark does not start its nodes"
        yield found


def train(start: Start, workers: int, communication: str, gbit: int, networks: tuple[str, ...]) -> Result:
    """Run a job, and read what its workers saved."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
        job = Job(workers, communication, gbit, Path(name), networks)
        for network in networks:
            (job.folder / network).mkdir()
        start(job)
        for network in networks:
            if (saved := len(measure.saved(job.folder / network))) != workers:
                raise Failed(f"{network}: {saved} processes saved a measurement", "not all measured")
        first = [float(file.read_text()) for file in (job.folder / networks[0]).glob("*.first")]
        return Result(
            {network: measure.examples_per_second(job.folder / network, NETWORKS[network].examples)
             for network in networks},
            max(first) - float((job.folder / "called").read_text()),
        )  # fmt: skip


def measured(rounds: int, networks: tuple[str, ...], reasons: Reasons) -> Results:
    """Run all jobs in turn, those over MPI and those with the ring alternating."""
    results: Results = {}
    with engines(reasons) as found:
        for number in range(rounds):
            for gbit, (name, start), workers in itertools.product(GBITS, found.items(), WORKERS):
                case = Case(name, workers, gbit)
                for carrier in CARRIERS if number % 2 == 0 else CARRIERS[::-1]:
                    try:
                        result = train(start, workers, carrier, gbit, networks)
                        results.setdefault((case, carrier), []).append(result)
                    except Failed as error:
                        print(error, file=sys.stderr, flush=True)
                        reasons[f"{case}, {carrier}"] = error.reason
    return results


def compare(rounds: int, networks: tuple[str, ...] = CNNS) -> None:
    """Print the tables and the bars."""
    reasons: Reasons = {}
    results = measured(rounds, networks, reasons)
    print(report.machine())
    print(f"\nTwo hosts, each a network namespace with a core; medians of {rounds} alternating rounds.")
    print(f"With 4 workers, two share the core of their host.{shared_cores()}")
    bars = []
    for network in networks:
        lines, judged = speed_table(network, results)
        print("\n".join(["", *lines]))
        bars += judged
    lines, judged = start_table(results)
    print("\n".join(["", *lines]))
    for name, why in reasons.items():
        print(f"-: {name}: {why}")
    print("\n".join(["", "Bars", *bars, *judged]), flush=True)


def shared_cores() -> str:
    """A sentence for a machine with one core."""
    return "" if len(CORES) >= len(NAMES) else " Both hosts have the same core."


def median(values: list[float]) -> float:
    """The median; not a number, which meets no bar, if there are no values."""
    return report.median(values) if values else math.nan


def cell(value: float, form: str) -> str:
    """A number of a table, or a dash if it was not measured."""
    return "-" if math.isnan(value) else format(value, form)


def speed_table(network: str, results: Results) -> tuple[list[str], list[str]]:
    """The lines of the table of a network, and its bars."""
    lines = [f"{NETWORKS[network].title}: examples/s"]
    lines.append(f"{'':12}{'workers':>8}{'Gbit/s':>8}{'MPI':>10}{'ring':>10}   times ({TIMES[network]:g})")
    bars = []
    for case in dict.fromkeys(case for case, _ in results):
        mpi, ring = (
            median([result.examples[network] for result in results.get((case, each), ())])
            for each in CARRIERS
        )
        times = mpi / ring
        cells = "".join(f"{cell(speed, ',.0f'):>10}" for speed in (mpi, ring))
        lines.append(f"{case.engine:12}{case.workers:8}{case.gbit:8}{cells}   {cell(times, '.2f')}")
        bars.append(report.judged(times, TIMES[network], f"{network}: {case}: MPI / ring"))
    return lines, bars


def start_table(results: Results) -> tuple[list[str], list[str]]:
    """The lines of the table of starts, and its bars."""
    lines = ["Seconds from the call of the engine to the first step of the first network, cold"]
    lines.append(f"{'':12}{'workers':>8}{'MPI':>10}{'ring':>10}{'later':>10}")
    bars = []
    for engine, workers in dict.fromkeys((case.engine, case.workers) for case, _ in results):
        starts: dict[str, list[float]] = {carrier: [] for carrier in CARRIERS}
        for (case, carrier), found in results.items():
            if (case.engine, case.workers) == (engine, workers):
                starts[carrier] += [result.start for result in found]
        mpi, ring = (median(starts[each]) for each in CARRIERS)
        cells = "".join(f"{cell(seconds, '.2f'):>10}" for seconds in (mpi, ring, mpi - ring))
        lines.append(f"{engine:12}{workers:8}{cells}")
        what = f"{engine}, {workers} workers: seconds that the first step over MPI comes later"
        bars.append(report.within(mpi - ring, LATER, what))
    return lines, bars
