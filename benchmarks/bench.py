"""Images per second of the seed CNN: tfdistr from Python and from R, and stock tf-keras.

    make bench

All systems run in turn, several rounds, so that a slow minute of the machine hits them alike. The
first epoch (tracing) is left out; the numbers are medians over the other epochs of all rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import seed_cnn

import tfdistr
from tfdistr.launch.ports import free_ports

HERE = Path(__file__).parent


def epochs_and_start(run_dir: Path, called: float) -> tuple[list[float], float]:
    """Seconds of each epoch, and from the call to the end of the first step, as the chief reported."""
    lines = (run_dir / "workers/0/events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    first = next(e["time"] for e in events if e["event"] == "batch")
    return [e["seconds"] for e in events if e["event"] == "epoch_end"], first - called


def run_tfdistr(command: list[str], run_dir: Path) -> tuple[list[float], float]:
    ran = subprocess.run(command, check=True, timeout=300, cwd=HERE.parent, stdout=subprocess.PIPE, text=True)
    return epochs_and_start(run_dir, called=float(ran.stdout.split()[-1]))


def run_python(workers: int, run_dir: Path) -> tuple[list[float], float]:
    given = ["--workers", str(workers), "--run-dir", str(run_dir)]
    return run_tfdistr([sys.executable, str(HERE / "seed_cnn.py"), *given], run_dir)


def run_r(workers: int, run_dir: Path) -> tuple[list[float], float]:
    return run_tfdistr(["Rscript", str(HERE / "seed_cnn.R"), str(workers), str(run_dir)], run_dir)


def run_stock(python: str, workers: int) -> list[float]:
    """Epoch seconds of stock tf-keras: the slowest worker's."""
    plan = tfdistr.tf_config(worker=[f"127.0.0.1:{port}" for port in free_ports(workers)])
    environments = plan.environments() if workers > 1 else [{}]
    processes = [
        subprocess.Popen(
            [python, str(HERE / "stock.py")], env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"} | environment,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        for environment in environments
    ]  # fmt: skip
    try:
        printed = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    epochs = [json.loads(text.splitlines()[-1]) for text in printed]
    return [max(seconds) for seconds in zip(*epochs, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stock-python", required=True, help="Python with tensorflow and tf-keras")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    epochs: dict[tuple[str, int], list[float]] = {}
    starts: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="tfdistr-bench-") as folder:
        for number in range(given.rounds):
            for workers in (1, 2):
                for name, run in (("tfdistr, Python", run_python), ("tfdistr, R", run_r)):
                    run_dir = Path(folder) / f"{number}-{workers}-{name[-1]}"
                    seconds, start = run(workers, run_dir)
                    epochs.setdefault((name, workers), []).extend(seconds[1:])
                    starts.setdefault((name, workers), []).append(start)
                stock = run_stock(given.stock_python, workers)
                epochs.setdefault(("stock tf-keras", workers), []).extend(stock[1:])
    images = {key: seed_cnn.EXAMPLES / statistics.median(seconds) for key, seconds in epochs.items()}
    report(images, {key: statistics.median(values) for key, values in starts.items()}, given.rounds)


def report(images: dict[tuple[str, int], float], starts: dict[tuple[str, int], float], rounds: int) -> None:
    print(f"\nSeed CNN, {seed_cnn.PER_WORKER_BATCH} images a worker, {os.cpu_count()} cores, "
          f"medians of {rounds} rounds\n")  # fmt: skip
    print(f"{'':18}{'workers':>8}{'images/s':>10}{'x stock':>9}{'x Python':>10}{'call to first step':>20}")
    for (name, workers), speed in images.items():
        against_stock = speed / images["stock tf-keras", workers]
        against_python = speed / images["tfdistr, Python", workers]
        start = f"{starts[name, workers]:.1f} s" if (name, workers) in starts else ""
        print(f"{name:18}{workers:8}{speed:10,.0f}{against_stock:9.2f}{against_python:10.2f}{start:>20}")


if __name__ == "__main__":
    main()
