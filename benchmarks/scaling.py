"""How the all-reduce scales: measured on 2, 4 and 8 workers in network namespaces, and extrapolated.

    make scaling

1. Bytes that a worker sends in a training step through tfdistr, against the least possible.
2. Time of the all-reduce of MPI, called as tfdistr calls it, over links of several rates and latencies.
3. A latency-bandwidth model (scaling_model.py), fitted to a part of these times; its error on the others;
   what it says of larger clusters (larger_clusters.py). The assumptions are printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile

import larger_clusters
import measure
import namespaces
import scaling_model
from networks import CNNS, NETWORKS, PER_WORKER_BATCH
from processes import CORES, HERE, MPIEXEC, Command, exit_when_terminated, mpiexec, pinned, python, run

import tfdistr

#: Links: Mbit/s and seconds of latency. The last is kept out of the fit.
LINKS = ((200, 0.0002), (200, 0.001), (50, 0.0005), (100, 0.0002), (100, 0.0005))
#: Bytes of a tensor, and how often it is reduced.
SIZES = {4: 100, 200_000: 20, 1_400_000: 8, 4_200_000: 4, 10_000_000: 3}
WORKERS = (2, 4, 8)
#: What is trained to count bytes: engine, network, workers, steps.
TRAINED = (
    ("mpi", "seed", 2, 20), ("mpi", "seed", 4, 20), ("mpi", "seed", 8, 20), ("mpi", "wide", 2, 4),
    ("ring", "seed", 2, 20), ("ring", "seed", 4, 20), ("ring", "seed", 8, 20), ("ring", "wide", 2, 4),
)  # fmt: skip
TRAINING_LINK = (500, 0.0001)
#: MPI between namespaces of one kernel: over TCP, not through shared memory.
OVER_TCP = {"MPIR_CVAR_NOLOCAL": "1", "MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}


def inside(worker: int, command: Command) -> Command:
    """``command`` in the namespace of this worker."""
    return ["ip", "netns", "exec", namespaces.host(worker), *command]


def mpi_job(workers: int, command: Command) -> Command:
    """``command`` as an MPI job with one rank in each namespace."""
    hosts = ",".join(map(namespaces.host, range(workers)))
    launcher = ["-launcher", "ssh", "-launcher-exec", str(HERE / "netns-exec.sh")]
    return inside(0, [MPIEXEC, *launcher, "-hosts", hosts, "-ppn", "1", "-n", str(workers), *command])


def bytes_of_a_step(engine: str, network: str, workers: int, steps: int) -> float:
    """What a worker (the one that sends most) sends in one step of training through tfdistr."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder, \
            namespaces.network(workers, *TRAINING_LINK):  # fmt: skip
        command = python("fit.py", network, folder, "--steps", steps, "--communication", engine)
        if engine == "mpi":
            run([mpi_job(workers, command)], [OVER_TCP])
        else:
            plan = tfdistr.tf_config(worker=[f"{namespaces.host(i)}:12345" for i in range(workers)])
            run([inside(i, command) for i in range(workers)], plan.environments())
        return max(worker["sent"][1] for worker in measure.saved(folder)) / steps


def all_reduce_times(workers: int, link: tuple[float, float]) -> list[scaling_model.Point]:
    """The all-reduce of each size over links of this kind: of the slowest worker."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder, namespaces.network(workers, *link):
        sizes = [f"{size}:{times}" for size, times in SIZES.items()]
        run([mpi_job(workers, python("all_reduce.py", "nonblocking", folder, *sizes))], [OVER_TCP])
        found = measure.saved(folder)
    return [
        scaling_model.Point(
            workers, *link, size,
            seconds=max(worker[str(size)]["ms"] for worker in found) / 1000,
            sent=max(worker[str(size)]["sent"] for worker in found),
        )
        for size in SIZES
    ]  # fmt: skip


def seconds_per_byte() -> float:
    """Cost of a byte where no link limits: two workers of this machine, 100 MB through shared memory."""
    size = 100_000_000
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        run([mpiexec(python("all_reduce.py", "mpi4py", folder, f"{size}:5"), 2)])
        return max(worker[str(size)]["ms"] for worker in measure.saved(folder)) / 1000 / size


def compute_seconds(network: str) -> float:
    """A step of one worker on a core of its own."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        run([pinned(python("fit.py", network, folder, "--communication", "ring"), 0)])
        (worker,) = measure.saved(folder)
    steps = NETWORKS[network].examples / PER_WORKER_BATCH
    return float(min(worker["epochs"][1:]) / steps)


def count_bytes() -> None:
    """Train, and print what a step sends."""
    print("Bytes that a worker sends in a training step through tfdistr, counted at its interface\n")
    print(f"{'':8}{'network':9}{'workers':>8}{'MB':>10}{'least: 2(N-1)/N x gradients':>30}{'ratio':>8}")
    for engine, network, workers, steps in TRAINED:
        sent = bytes_of_a_step(engine, network, workers, steps)
        least = 2 * (workers - 1) / workers * NETWORKS[network].weights * 4
        row = f"{engine:8}{network:9}{workers:8}{sent / 1e6:10.3f}{least / 1e6:30.3f}{sent / least:8.3f}"
        print(row, flush=True)


def time_all_reduces() -> None:
    """Measure, fit, extrapolate, and print all of it."""
    points = [point for workers in WORKERS for link in LINKS for point in all_reduce_times(workers, link)]
    kept_out = [p for p in points if p.workers == max(WORKERS) or (p.mbit, p.delay) == LINKS[-1]]
    model = scaling_model.fit([point for point in points if point not in kept_out], seconds_per_byte())
    print("\nThe all-reduce of MPI over TCP (libfabric), one worker in each namespace; "
          f"all of them share {len(CORES)} cores\n")  # fmt: skip
    print("\n".join(scaling_model.table(points, kept_out, model)))
    print(f"\nalpha = {model.alpha * 1e6:.0f} us, waits = {model.waits:.2f}, eta = {model.eta:.3f} (fitted); "
          f"gamma = {model.gamma * 1e9:.2f} ns (measured)\n")  # fmt: skip
    compute = {name: compute_seconds(name) for name in CNNS}
    print("\n".join(larger_clusters.table(model, compute)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="*", choices=("bytes", "times"), default=[])
    parts = parser.parse_args().parts or ("bytes", "times")
    exit_when_terminated()
    reason = namespaces.why_not()
    if reason:
        sys.exit(f"make scaling is not possible here: {reason}.")
    if "bytes" in parts:
        count_bytes()
    if "times" in parts:
        time_all_reduces()


if __name__ == "__main__":
    main()
