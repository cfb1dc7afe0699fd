"""What virtual workers cost: images per second with them, of those without.

    make bench T=virtual

The two CNNs, on 1 and 2 workers with a core each, and on one worker with two
cores. The systems take turns; a run counts with the median of its epochs but the first.
"""

from __future__ import annotations

import statistics
import tempfile

import measure
from networks import CNNS, NETWORKS
from processes import python, run

#: Workers, and cores of each.
PLACES = ((1, 1), (1, 2), (2, 1))
COUNTS = (2, 4, 8)


def compare(rounds: int) -> None:
    """Print images per second by network, place and number of virtual workers."""
    for network in CNNS:
        found: dict[tuple[int, int, int], list[float]] = {}
        for _ in range(rounds):
            for workers, cores in PLACES:
                for count in (0, *COUNTS):
                    speed = examples_per_second(network, workers, cores, count)
                    found.setdefault((workers, cores, count), []).append(speed)
        print(f"\n{NETWORKS[network].title}: images per second\n")
        head = ["workers x cores", "without", *(f"{count} virtual" for count in COUNTS)]
        print("".join(f"{title:>20}" for title in head))
        for workers, cores in PLACES:
            medians = [statistics.median(found[workers, cores, count]) for count in (0, *COUNTS)]
            cells = [f"{workers} x {cores}", f"{medians[0]:,.0f}"]
            cells += [f"{median:,.0f} ({median / medians[0]:.2f})" for median in medians[1:]]
            print("".join(f"{cell:>20}" for cell in cells), flush=True)


def examples_per_second(network: str, workers: int, cores: int, count: int) -> float:
    """Train a network once."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        options = ("--workers", workers, "--cores", cores, "--virtual", count)
        run([python("fit.py", network, folder, *options)])
        return measure.examples_per_second(folder, NETWORKS[network].examples)
