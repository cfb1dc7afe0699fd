"""The memory of two workers while they train the seed network for 10,000 steps: it must not grow.

    make bench T=memory
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import report
from processes import python, run

EPOCHS, STEPS = 100, 100
#: Epochs of warm-up, in which caches fill.
SETTLED = 20
#: Largest growth of a worker after the warm-up, in MB.
GROWTH_BAR = 8.0
CARRIERS = ("mpi", "ring")


def compare(rounds: int) -> None:
    """Print the resident memory of each worker, and the bars; one round is enough."""
    print(report.machine())
    print(f"\nResident memory in MB while {EPOCHS * STEPS:,} steps are trained, two workers\n")
    columns = (SETTLED, EPOCHS // 2, EPOCHS)
    heads = "".join(f"{f'step {epoch * STEPS:,}':>14}" for epoch in columns)
    print(f"{'':16}{heads}{'growth':>9}{'bytes a step':>14}")
    bars = []
    for carrier in CARRIERS:
        for worker, sampled in enumerate(resident_mb(carrier)):
            growth = growth_mb(sampled)
            cells = "".join(f"{sampled[epoch - 1]:14,.1f}" for epoch in columns)
            per_step = growth * 2**20 / ((EPOCHS - SETTLED) * STEPS)
            print(f"{f'{carrier}, worker {worker}':16}{cells}{growth:+9.1f}{per_step:14.0f}", flush=True)
            bars.append(report.within(growth, GROWTH_BAR, f"{carrier}, worker {worker}: MB of growth"))
    print("\n".join(["", "Bars", *bars]), flush=True)


def resident_mb(carrier: str) -> list[list[float]]:
    """The resident memory of each worker after each epoch."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        run([python("memory_fit.py", folder, carrier, EPOCHS, STEPS)], timeout=1800)
        found = [json.loads(file.read_text()) for file in sorted(Path(folder).glob("*.json"))]
    if [len(sampled) for sampled in found] != [EPOCHS, EPOCHS]:
        raise RuntimeError(f"samples: {[len(sampled) for sampled in found]}, not {EPOCHS} of two workers")
    return found


def growth_mb(sampled: list[float]) -> float:
    """Growth of a worker from the epochs after it has settled to its last epochs."""
    return report.median(sampled[-10:]) - report.median(sampled[SETTLED : SETTLED + 10])
