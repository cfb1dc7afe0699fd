"""What a checkpoint after each epoch costs: the seed CNN on 60,000 images, as many as MNIST has.

    make bench T=checkpoint

Two workers train with checkpoints and without, in turn, several rounds. An epoch lasts from the
beginning of one to that of the next; the first of a run (tracing) is left out, and the numbers are
medians over the others of all rounds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
from pathlib import Path

import networks

EXAMPLES = 60_000
EPOCHS = 5
CARRIERS = ("ring", "mpi")


def train(communication: str, every: str | None) -> tuple[list[float], list[float]]:
    """Seconds of the epochs, and of the checkpoints, of one run."""
    import numpy as np

    import tfdistr

    images, classes = networks.data("seed")
    times = -(-EXAMPLES // len(images))
    x, y = (np.concatenate([part] * times)[:EXAMPLES] for part in (images, classes))
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        tfdistr.distributed_fit(
            lambda: networks.model("seed"), x, y, cluster=tfdistr.local_cluster(2, cores_per_worker=1),
            strategy=tfdistr.multi_worker_mirrored(communication=communication),
            batch_size=tfdistr.per_worker(networks.PER_WORKER_BATCH), epochs=EPOCHS,
            seed=1, checkpoint_every=every, run_dir=folder, verbose=0,
        )  # fmt: skip
        lines = Path(folder, "workers/0/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    begins = [event["time"] for event in events if event["event"] == "epoch_begin"]
    saved = [event["seconds"] for event in events if event["event"] == "checkpoint"]
    return [end - begin for begin, end in itertools.pairwise(begins[1:])], saved[1:]


def compare(rounds: int) -> None:
    """Print the table."""
    seconds: dict[tuple[str, str | None], list[float]] = {}
    saves: dict[str, list[float]] = {}
    for _ in range(rounds):
        for communication in CARRIERS:
            for every in (None, "epoch"):
                epochs, saved = train(communication, every)
                seconds.setdefault((communication, every), []).extend(epochs)
                saves.setdefault(communication, []).extend(saved)
    print(f"Seed CNN, {EXAMPLES:,} images, 2 workers, medians of {rounds} rounds\n")
    print("        epoch without    with   a checkpoint takes   of the epoch (bar 2 %)")
    for communication in CARRIERS:
        without, others = (statistics.median(seconds[communication, every]) for every in (None, "epoch"))
        save = statistics.median(saves[communication])
        part = f"{save * 1e3:14.1f} ms  {save / without:12.2%}"
        print(f"{communication:6}  {without:11.2f} s  {others:4.2f} s  {part}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    compare(parser.parse_args().rounds)
