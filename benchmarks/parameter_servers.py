"""Updates of the weights in a second, with a parameter server and two workers: TensorFlow 1's loop and ours.

A softmax regression on 55,000 images of the size of MNIST's, 100 a step. All processes share the cores. The
systems take turns. A run of TensorFlow's counts with its steps but the first quarter, one of ours with the
median of its epochs but the first, a system with the median of its runs.

As a program it trains by distributed_fit(): parameter_servers.py UPDATE FOLDER
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import measure
import ps_loop
from processes import python, run
from report import in_turn, median, show, table

import tfdistr
from tfdistr.network.ports import free_ports

WORKERS, EPOCHS = 2, 4
STEPS = ps_loop.EXAMPLES // ps_loop.BATCH
UPDATES = ("async", "sync")


def tensorflow_1(update: str, folder: str) -> float:
    """Updates in a second by TensorFlow 1's loop."""
    ps, *workers = [f"127.0.0.1:{port}" for port in free_ports(1 + WORKERS)]
    given = (json.dumps({"ps": [ps], "worker": workers}), update, STEPS * EPOCHS, folder)
    tasks = [("ps", 0), *(("worker", index) for index in range(WORKERS))]
    run([python("ps_loop.py", *task, *given) for task in tasks])
    return float(Path(folder, "speed").read_text())


def ours(update: str, folder: str) -> float:
    """Updates in a second by distributed_fit()."""
    run([python("parameter_servers.py", update, folder)])
    return measure.examples_per_second(folder, STEPS)


def model() -> Any:
    """The softmax regression."""
    import keras

    net = keras.Sequential([keras.Input((784,)), keras.layers.Dense(ps_loop.CLASSES, "softmax")])
    net.compile(keras.optimizers.SGD(ps_loop.RATE), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return net


def fit(update: str, folder: str) -> None:
    """Train as ps_loop.py does."""
    tfdistr.distributed_fit(
        model, *ps_loop.examples(), batch_size=ps_loop.BATCH, epochs=EPOCHS, verbose=0,
        cluster=tfdistr.local_cluster(WORKERS, ps=1), strategy=tfdistr.parameter_server(update=update),
        callbacks=lambda: [measure.callback(folder)],
    )  # fmt: skip


def compare(rounds: int) -> None:
    """Print the table and the bar."""
    systems = {"TensorFlow 1": tensorflow_1, "tfdistr": ours}

    def once(update: str, system: str) -> float:
        with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
            return systems[system](update, folder)

    found = in_turn(rounds, {case: partial(once, *case) for case in itertools.product(UPDATES, systems)})
    medians = {update: [median(found[update, system]) for system in systems] for update in UPDATES}
    rows = [[update, *(f"{speed:.0f}" for speed in speeds)] for update, speeds in medians.items()]
    ratios = {update: own / theirs for update, (theirs, own) in medians.items()}
    show(
        f"\nUpdates in a second, a parameter server and {WORKERS} workers, medians of {rounds}",
        table(["update", *systems], rows),
        "\n".join(
            f"{update}: tfdistr / the other: {ratio:.2f} ({'met' if ratio >= 1 else 'MISSED'}: at least 1)"
            for update, ratio in ratios.items()
        ),
    )


if __name__ == "__main__":
    fit(*sys.argv[1:])
