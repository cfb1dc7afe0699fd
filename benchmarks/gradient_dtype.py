"""Accuracy on MNIST with gradients that travel as float32 and as bfloat16, over some seeds.

    .venv/bin/python benchmarks/gradient_dtype.py DATA_DIR [SEEDS]

DATA_DIR holds MNIST as TensorFlow Datasets prepares it.
"""

from __future__ import annotations

import sys

import networks

import tfdistr
from tfdistr.utils.arguments import GRADIENT_DTYPES


def model() -> object:
    import keras

    network = networks.model("seed", keras)
    network.optimizer.learning_rate = 0.1
    return network


def main(data_dir: str, seeds: int) -> None:
    train, test = (tfdistr.load_dataset("mnist", split, data_dir=data_dir) for split in ("train", "test"))
    print("seed", *(f"{dtype:>9}" for dtype in GRADIENT_DTYPES))
    for seed in range(1, seeds + 1):
        accuracy = []
        for dtype in GRADIENT_DTYPES:
            fit = tfdistr.distributed_fit(
                model, train, validation_data=test, cluster=tfdistr.local_cluster(2), seed=seed, verbose=0,
                batch_size=tfdistr.per_worker(64), epochs=3,
                strategy=tfdistr.multi_worker_mirrored(gradient_dtype=dtype),
            )  # fmt: skip
            accuracy.append(fit.metrics["val_accuracy"])
        print(f"{seed:4}", *(f"{value:9.4f}" for value in accuracy), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3)
