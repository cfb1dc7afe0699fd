"""One process with all cores against a worker for each core, both by tfdistr, with the same global batch.

    make bench T=cores

The two take turns. A run counts with the median of its epochs but the first.
"""

from __future__ import annotations

import tempfile

import measure
import report
from networks import NETWORKS
from processes import CORES, python, run


def compare(rounds: int) -> None:
    """Print the table."""
    workers = len(CORES)
    print(report.machine())
    print(f"\nExamples per second on {workers} cores, medians of {rounds} alternating runs\n")
    print(f"{'':12}{'one process':>14}{f'{workers} workers':>14}{'ratio':>8}")
    for network in NETWORKS:
        found: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            found[0].append(examples_per_second(network, workers=1, cores=workers))
            found[1].append(examples_per_second(network, workers=workers, cores=1))
        one, several = map(report.median, found)
        print(f"{network:12}{one:14,.0f}{several:14,.0f}{several / one:8.2f}", flush=True)


def examples_per_second(network: str, workers: int, cores: int) -> float:
    """Train a network once; each core has its share of the global batch."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        options = ("--workers", workers, "--cores", cores, "--shares", cores)
        run([python("fit.py", network, folder, *options)])
        return measure.examples_per_second(folder, NETWORKS[network].examples)
