"""Updates of the weights in a second, with a parameter server and two workers: TensorFlow 1's loop and ours.

    make bench T=ps

A softmax regression on 55,000 images of the size of MNIST's, 100 a step. All processes share the cores. The
systems take turns. A run of TensorFlow's counts with its steps but the first quarter, one of ours with the
median of its epochs but the first, a system with the median of its runs.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import measure
import ps_data
import report
from processes import python, run

from tfdistr.network.ports import free_ports

WORKERS, EPOCHS = 2, 4
STEPS = ps_data.EXAMPLES // ps_data.BATCH
UPDATES = ("async", "sync")


def tensorflow_1(update: str, folder: Path) -> float:
    """Updates in a second by TensorFlow 1's loop."""
    ps, *workers = [f"127.0.0.1:{port}" for port in free_ports(1 + WORKERS)]
    given = (json.dumps({"ps": [ps], "worker": workers}), update, STEPS * EPOCHS, folder)
    tasks = [("ps", 0), *(("worker", index) for index in range(WORKERS))]
    run([python("ps_loop.py", *task, *given) for task in tasks])
    return float((folder / "speed").read_text())


def ours(update: str, folder: Path) -> float:
    """Updates in a second by distributed_fit()."""
    run([python("ps_fit.py", WORKERS, update, EPOCHS, folder)])
    return measure.examples_per_second(folder, STEPS)


def compare(rounds: int) -> None:
    """Print the table and the bar."""
    found: dict[tuple[str, str], list[float]] = {}
    for _ in range(rounds):
        for update in UPDATES:
            for system in (tensorflow_1, ours):
                with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
                    found.setdefault((update, system.__name__), []).append(system(update, Path(folder)))
    print(f"\nUpdates in a second, a parameter server and {WORKERS} workers, medians of {rounds}\n")
    print(f"{'update':8}{'TensorFlow 1':>14}{'tfdistr':>10}")
    ratios = {}
    for update in UPDATES:
        theirs, own = (report.median(found[update, system.__name__]) for system in (tensorflow_1, ours))
        ratios[update] = own / theirs
        print(f"{update:8}{theirs:14.0f}{own:10.0f}")
    print()
    for update, ratio in ratios.items():
        print(f"{update}: tfdistr / the other: {ratio:.2f} ({'met' if ratio >= 1 else 'MISSED'}: at least 1)")
