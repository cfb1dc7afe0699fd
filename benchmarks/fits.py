"""The parts that are nothing but fits of fit.py and fit.R, with other options."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, TypeVar

import measure
from networks import CNNS, NETWORKS, PER_WORKER_BATCH, model
from processes import CORES, fits, run
from report import bars, in_turn, judged, machine, median, number, show, table, within

import tfdistr
from tfdistr.utils.arguments import GRADIENT_DTYPES

CARRIERS = ("mpi", "ring")
#: Speed of the training from R, as a part of Python's.
OF_PYTHON = 0.98
#: Epochs and steps while memory is sampled, epochs in which caches fill, the largest growth after them (MB).
SAMPLED, SAMPLED_STEPS, SETTLED, GROWTH = 100, 100, 20, 8.0
#: Steps of an epoch of the seed network on one worker.
STEPS = NETWORKS["seed"].examples // PER_WORKER_BATCH

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def fitted(read: Callable[[str], V], language: str = "Python", timeout: float = 300, **call: Any) -> V:
    """Train once; what ``read`` finds in the folder of the fit."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        run([fits([{"folder": folder, **call}], language)], timeout=timeout)
        return read(folder)


def seconds(folder: str) -> float:
    """The seconds of an epoch of the fit of one worker."""
    return median(measure.saved(folder)[0]["epochs"][1:])


def medians(
    rounds: int, cases: Mapping[K, Mapping[str, Any]], read: Callable[[str], float] | None = None
) -> dict[K, float]:
    """The median of each case, which is a call of `fitted()`; by default of its examples per second."""

    def speed(network: str) -> Callable[[str], float]:
        return lambda folder: measure.examples_per_second(folder, NETWORKS[network].examples)

    found = in_turn(rounds, {
        case: partial(fitted, read or speed(call.get("network", "seed")), **call)
        for case, call in cases.items()
    })  # fmt: skip
    return {case: median(values) for case, values in found.items()}


def cores(rounds: int) -> None:
    """One process with all cores against a worker for each core, with the same global batch."""
    count = len(CORES)
    places = {"one process": (1, count), f"{count} workers": (count, 1)}
    found = medians(rounds, {
        (network, place): {"network": network, "workers": workers, "cores": each, "shares": each}
        for network in NETWORKS for place, (workers, each) in places.items()
    })  # fmt: skip
    rows = []
    for network in NETWORKS:
        one, several = (found[network, place] for place in places)
        rows.append([network, number(one), number(several), number(several / one, ".2f")])
    title = f"Examples per second on {count} cores, medians of {rounds} alternating runs"
    show(machine(), title, table(["", *places, "ratio"], rows))


def virtual(rounds: int) -> None:
    """What virtual workers cost: images per second with them, of those without."""
    places, counts = ((1, 1), (1, 2), (2, 1)), (None, 2, 4, 8)
    found = medians(rounds, {
        (network, (workers, each), count): {
            "network": network, "workers": workers, "cores": each, "virtual": count
        }
        for network, (workers, each), count in itertools.product(CNNS, places, counts)
    })  # fmt: skip
    for network in CNNS:
        rows = []
        for place in places:
            without, *others = (found[network, place, count] for count in counts)
            cells = [f"{speed:,.0f} ({speed / without:.2f})" for speed in others]
            rows.append(["{} x {}".format(*place), number(without), *cells])
        head = ["workers x cores", "without", *(f"{count} virtual" for count in counts[1:])]
        show(f"{NETWORKS[network].title}: images per second", table(head, rows, left=()) + "\n")


def checkpoint(rounds: int) -> None:
    """What a checkpoint after each epoch costs: the seed CNN on as many images as MNIST has.

    An epoch lasts from the beginning of one to that of the next.
    """
    examples = 60_000

    def read(folder: str) -> tuple[list[float], list[float]]:
        events = measure.events(folder)
        begins = [event["time"] for event in events if event["event"] == "epoch_begin"]
        saved = [event["seconds"] for event in events if event["event"] == "checkpoint"]
        return [end - begin for begin, end in itertools.pairwise(begins[1:])], saved[1:]

    found = in_turn(rounds, {
        (carrier, every): partial(fitted, read, workers=2, communication=carrier, every=every, epochs=5,
                                  examples=examples)
        for carrier in CARRIERS for every in (None, "epoch")
    })  # fmt: skip
    rows = []
    for carrier in CARRIERS:
        without, others = (
            median([seconds for epochs, _ in found[carrier, every] for seconds in epochs])
            for every in (None, "epoch")
        )
        save = median([seconds for _, saves in found[carrier, "epoch"] for seconds in saves])
        rows.append(
            [carrier, f"{without:.2f} s", f"{others:.2f} s", f"{save * 1e3:.1f} ms", f"{save / without:.2%}"]
        )
    title = f"Seed CNN, {examples:,} images, 2 workers, medians of {rounds} rounds"
    head = ["", "epoch without", "with", "a checkpoint takes", "of the epoch (bar 2 %)"]
    show(title, table(head, rows))


def memory(rounds: int) -> None:
    """The memory of two workers while they train for 10,000 steps: it must not grow. One round is enough."""
    epochs = (SETTLED, SAMPLED // 2, SAMPLED)
    rows, judged = [], []
    for carrier in CARRIERS:
        options = {"epochs": SAMPLED, "steps": SAMPLED_STEPS, "communication": carrier}
        for worker, found in enumerate(fitted(measure.saved, timeout=1800, workers=2, **options)):
            sampled = found["resident_mb"]
            growth = median(sampled[-10:]) - median(sampled[SETTLED : SETTLED + 10])
            per_step = growth * 2**20 / ((SAMPLED - SETTLED) * SAMPLED_STEPS)
            name = f"{carrier}, worker {worker}"
            rows.append([name, *(number(sampled[epoch - 1], ",.1f") for epoch in epochs),
                         f"{growth:+.1f}", f"{per_step:.0f}"])  # fmt: skip
            judged.append(within(growth, GROWTH, f"{name}: MB of growth"))
    title = f"Resident memory in MB while {SAMPLED * SAMPLED_STEPS:,} steps are trained, two workers"
    head = ["", *(f"step {epoch * SAMPLED_STEPS:,}" for epoch in epochs), "growth", "bytes a step"]
    show(machine(), title, table(head, rows), bars(judged))


def generators(rounds: int) -> None:
    """What a generator costs: the same training from arrays, from a generator in Python and from one in R."""
    cases = {"arrays": "Python", "Python generator": "Python", "R generator": "R"}
    # The workers are this process: no worker can call a generator of R.
    found = medians(rounds, {
        data: {"language": language, "steps": STEPS, "epochs": 4, "data": data}
        for data, language in cases.items()
    }, seconds)  # fmt: skip
    for data, each in found.items():
        print(f"{data:18} {each:.3f} s an epoch of {STEPS} steps", flush=True)


def languages(rounds: int) -> None:
    """What R costs: callbacks in one process, and training, beside the same from Python."""
    both = ("Python", "R")
    callbacks = {"none": None, "after each epoch": "epoch", "after each batch": "batch"}
    epochs = medians(rounds, {
        (what, language): {"language": language, "callback": after}
        for what, after in callbacks.items() for language in both
    }, seconds)  # fmt: skip
    trained = medians(rounds, {
        (workers, language): {"language": language, "workers": workers, "cores": 1}
        for workers in (1, 2) for language in both
    })  # fmt: skip
    rows, speeds, judgements = [], [], []
    for what in callbacks:
        of_python, of_r = (1000 * epochs[what, language] / STEPS for language in both)
        cells = [number(ms, ".3f") for ms in (of_python, of_r, of_r - of_python)]
        rows.append([what, *cells, number(of_r / of_python, ".1f")])
    for workers in (1, 2):
        of_python, of_r = (trained[workers, language] for language in both)
        speeds.append([workers, number(of_python), number(of_r), number(of_r / of_python, ".3f")])
        judgements.append(judged(of_r / of_python, OF_PYTHON, f"R / Python, seed CNN, {workers} workers"))
    show(
        machine(), f"Medians of {rounds} rounds of turns", f"Milliseconds of a batch, epochs of {STEPS}",
        table(["callback", *both, "R - Python", "R / Python"], rows),
        "Seed CNN: images per second", table(["workers", *both, "R / Python"], speeds, left=()),
        bars(judgements),
    )  # fmt: skip


def bfloat16(rounds: int) -> None:
    """The accuracy on MNIST with gradients that travel as float32 and as bfloat16; a round is a seed.

    The folder DATA_DIR has MNIST as TensorFlow Datasets prepares it.
    """
    folder = os.environ.get("DATA_DIR")
    if not folder:
        sys.exit("This part needs DATA_DIR, a folder with MNIST of TensorFlow Datasets.")
    train, test = (tfdistr.load_dataset("mnist", split, data_dir=folder) for split in ("train", "test"))

    def network() -> Any:
        made = model("seed")
        made.optimizer.learning_rate = 0.1
        return made

    print("seed", *(f"{dtype:>9}" for dtype in GRADIENT_DTYPES))
    for seed in range(1, rounds + 1):
        accuracies = [
            tfdistr.distributed_fit(
                network, train, validation_data=test, cluster=tfdistr.local_cluster(2), seed=seed, verbose=0,
                batch_size=tfdistr.per_worker(PER_WORKER_BATCH), epochs=3,
                strategy=tfdistr.multi_worker_mirrored(gradient_dtype=dtype),
            ).metrics["val_accuracy"]
            for dtype in GRADIENT_DTYPES
        ]  # fmt: skip
        print(f"{seed:4}", *(f"{value:9.4f}" for value in accuracies), flush=True)
