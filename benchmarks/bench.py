"""The benchmarks: a table of their parts, and what runs them.

    make bench
    make bench T='seed memory' ROUNDS=5        # parts: networks, and those of PARTS
    make bench T=wide SYSTEMS=MPI ROUNDS=15    # those with this in their name
    make bench ROUNDS=1 STEPS=2                # two steps an epoch, to see what runs

Each worker has a core of its own. All systems run in turn, then again. A run counts with the median of its
epochs but the first (tracing), a system with the median of its runs.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable

import data
import fits
import links
import parameter_servers
import speed
import start
from networks import NETWORKS

#: Parts with tables of their own, by name.
PARTS: dict[str, Callable[[int], None]] = {
    "bfloat16": fits.bfloat16,
    "checkpoint": fits.checkpoint,
    "cores": fits.cores,
    "data": data.compare,
    "clusters": links.carriers,
    "generators": fits.generators,
    "languages": fits.languages,
    "memory": fits.memory,
    "ps": parameter_servers.compare,
    "scaling": links.scaling,
    "start": start.compare,
    "virtual": fits.virtual,
}


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends what it started, as Ctrl-C does
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", nargs="*", choices=[*NETWORKS, *PARTS], default=[])
    parser.add_argument("--systems", default="", metavar="NAME", help="only those with this in their name")
    parser.add_argument("--steps", type=int, help="train each network for two epochs of so many steps")
    given = parser.parse_args()
    parts = given.parts or NETWORKS
    if networks := [name for name in NETWORKS if name in parts]:
        speed.compare(given.rounds, networks, given.systems, given.steps)
    for name, compare in PARTS.items():
        if name in parts:
            compare(given.rounds)


if __name__ == "__main__":
    main()
