"""The parts that are nothing but fits of fit.py and fit.R, with other options."""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import measure
from networks import CNNS, NETWORKS, PER_WORKER_BATCH, model
from processes import CORES, fits, run
from report import bars, in_turn, judged, machine, median, number, reasons, show, table, within
from systems import DDP, KERAS, KERAS_JAX, KERAS_TORCH, MPI, MPI_R, MWMS, SYSTEMS, System

import tfdistr
from tfdistr.utils.arguments import GRADIENT_DTYPES

CARRIERS = ("mpi", "ring")
#: Speed of the training from R, as a part of Python's.
OF_PYTHON = 0.98
#: Steps of an epoch of a small job, and what is started for it.
SMALL = 10
PROGRAMS = (KERAS, MWMS, DDP, KERAS_TORCH, KERAS_JAX, MPI, MPI_R)
#: Epochs and steps while memory is sampled, epochs in which caches fill, the largest growth after them (MB).
SAMPLED, SAMPLED_STEPS, SETTLED, GROWTH = 100, 100, 20, 8.0

V = TypeVar("V")


def fitted(read: Callable[[str], V], language: str = "Python", timeout: float = 300, **call: Any) -> V:
    """Train once; what ``read`` finds in the folder of the fit."""
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        run([fits([{"folder": folder, **call}], language)], timeout=timeout)
        return read(folder)


def speed(network: str, **call: Any) -> float:
    """Examples per second."""
    examples = NETWORKS[network].examples
    return fitted(lambda each: measure.examples_per_second(each, examples), network=network, **call)


def cores(rounds: int) -> None:
    """One process with all cores against a worker for each core, with the same global batch."""
    count = len(CORES)
    places = {"one process": (1, count), f"{count} workers": (count, 1)}
    found = in_turn(rounds, {
        (network, place): partial(speed, network, workers=workers, cores=each, shares=each)
        for network in NETWORKS for place, (workers, each) in places.items()
    })  # fmt: skip
    rows = []
    for network in NETWORKS:
        one, several = (median(found[network, place]) for place in places)
        rows.append([network, number(one), number(several), number(several / one, ".2f")])
    title = f"Examples per second on {count} cores, medians of {rounds} alternating runs"
    show(machine(), title, table(["", *places, "ratio"], rows))


def virtual(rounds: int) -> None:
    """What virtual workers cost: images per second with them, of those without."""
    places, counts = ((1, 1), (1, 2), (2, 1)), (None, 2, 4, 8)
    found = in_turn(rounds, {
        case: partial(speed, case[0], workers=case[1][0], cores=case[1][1], virtual=case[2])
        for case in itertools.product(CNNS, places, counts)
    })  # fmt: skip
    for network in CNNS:
        rows = []
        for workers, each in places:
            without, *others = (median(found[network, (workers, each), count]) for count in counts)
            cells = [f"{speed:,.0f} ({speed / without:.2f})" for speed in others]
            rows.append([f"{workers} x {each}", number(without), *cells])
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
    steps = NETWORKS["seed"].examples // PER_WORKER_BATCH

    def seconds(folder: str) -> float:
        return median(measure.saved(folder)[0]["epochs"][1:])

    # The workers are this process: no worker can call a generator of R.
    found = in_turn(rounds, {
        data: partial(fitted, seconds, language, steps=steps, epochs=4, data=data)
        for data, language in cases.items()
    })  # fmt: skip
    for data in cases:
        print(f"{data:18} {median(found[data]):.3f} s an epoch of {steps} steps", flush=True)


def job(rounds: int) -> None:
    """Seconds from the call to the result of a small job: the seed network, two epochs of ten steps.

    A program counts from its start to its end, with its imports. In a session, which has imported tfdistr,
    the call of a fit counts: with new processes (cold), and with workers that are forks of a server (warm).
    """

    def of_program(system: System) -> float:
        with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
            commands, environments = system.commands("seed", Path(folder), SMALL), system.environments()
            began = time.monotonic()
            run(commands, environments)
            return time.monotonic() - began

    def in_session(*warm: bool) -> float:
        """Of the last of some fits, one after the other; the first warm one starts the server."""
        with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as name:
            folders = [Path(name, str(place)) for place in range(len(warm))]
            for folder in folders:
                folder.mkdir()
            call = {"workers": 2, "communication": "mpi", "steps": SMALL}
            calls = [{"folder": str(f), "warm": w, **call} for f, w in zip(folders, warm, strict=True)]
            run([fits(calls)])
            called, returned = (float((folders[-1] / at).read_text()) for at in ("called", "returned"))
            return returned - called

    failures: dict[str, str] = {}
    found = in_turn(rounds, {
        **{system.name: partial(of_program, system) for system in SYSTEMS if system.name in PROGRAMS},
        "tfdistr, MPI, call in a session": partial(in_session, False),
        "tfdistr, MPI, warm call": partial(in_session, True, True),
    }, failures)  # fmt: skip
    rows = [
        [
            name,
            number(median(seconds), ".2f"),
            f"({min(seconds):.2f} to {max(seconds):.2f})" if seconds else "",
        ]
        for name, seconds in found.items()
    ]
    title = f"Seconds from the call to the result of {2 * SMALL} steps, medians of {rounds} rounds"
    show(machine(), title, table(["", "seconds", "(min to max)"], rows), reasons(failures))


def languages(rounds: int) -> None:
    """What R costs: callbacks in one process, and training, beside the same from Python."""
    both = ("Python", "R")
    callbacks = {"none": None, "after each epoch": "epoch", "after each batch": "batch"}
    steps = NETWORKS["seed"].examples // PER_WORKER_BATCH

    def milliseconds(folder: str) -> float:
        return 1000 * median(measure.saved(folder)[0]["epochs"][1:]) / steps

    batches = in_turn(rounds, {
        (what, language): partial(fitted, milliseconds, language, callback=after)
        for what, after in callbacks.items() for language in both
    })  # fmt: skip
    trained = in_turn(rounds, {
        (workers, language): partial(speed, "seed", language=language, workers=workers, cores=1)
        for workers in (1, 2) for language in both
    })  # fmt: skip
    rows, speeds, judgements = [], [], []
    for what in callbacks:
        of_python, of_r = (median(batches[what, language]) for language in both)
        cells = [number(ms, ".3f") for ms in (of_python, of_r, of_r - of_python)]
        rows.append([what, *cells, number(of_r / of_python, ".1f")])
    for workers in (1, 2):
        of_python, of_r = (median(trained[workers, language]) for language in both)
        speeds.append([workers, number(of_python), number(of_r), number(of_r / of_python, ".3f")])
        judgements.append(judged(of_r / of_python, OF_PYTHON, f"R / Python, seed CNN, {workers} workers"))
    show(
        machine(), f"Medians of {rounds} rounds of turns", f"Milliseconds of a batch, epochs of {steps}",
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
