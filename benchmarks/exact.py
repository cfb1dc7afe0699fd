"""Whether many workers end with the bits of one on MNIST, without and with virtual workers.

    .venv/bin/python benchmarks/exact.py DATA_DIR [EXAMPLES [EPOCHS]]

DATA_DIR holds MNIST as TensorFlow Datasets prepares it. It prints, for SGD with a learning rate of 0.1 and
for Adam, the accuracy on 1 to 4 workers and a part of the hash of the weights. Then it trains a network with
Dropout and BatchNormalization with 1, 4 and 8 virtual workers, and with other seeds.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any

import networks
import numpy as np

import tfdistr


def seed_network(optimizer: str) -> Callable[[], Any]:
    def model() -> Any:
        import keras

        network = networks.model("seed", keras)
        made = keras.optimizers.SGD(0.1) if optimizer == "SGD 0.1" else keras.optimizers.Adam()
        network.compile(made, "sparse_categorical_crossentropy", metrics=["accuracy"])
        return network

    return model


def random_network() -> Any:
    import keras
    from keras import layers

    network = keras.Sequential([
        layers.Rescaling(1 / 255), layers.Conv2D(32, 3, activation="relu"), layers.BatchNormalization(),
        layers.MaxPooling2D(), layers.Flatten(), layers.Dropout(0.3), layers.Dense(64, activation="relu"),
        layers.Dense(10, activation="softmax"),
    ])  # fmt: skip
    network.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return network


def main(data_dir: str, examples: int, epochs: int) -> None:
    (x, y), (x_test, y_test) = (
        tfdistr.load_dataset("mnist", split, data_dir=data_dir).arrays() for split in ("train", "test")
    )
    x, y = x[:examples], y[:examples]

    def train(model: Callable[[], Any], workers: int, count: int | None, seed: int = 1) -> tuple[str, Any]:
        fit = tfdistr.distributed_fit(
            model, x, y, validation_data=(x_test, y_test), batch_size=256, epochs=epochs, seed=seed,
            cluster=tfdistr.local_cluster(workers), virtual_workers=count, verbose=0,
        )  # fmt: skip
        bits = b"".join(np.asarray(weight).tobytes() for weight in fit.model.get_weights())
        return hashlib.sha256(bits).hexdigest()[:8], fit.metrics

    steps = -(-examples // 256) * epochs
    for optimizer in ("SGD 0.1", "Adam"):
        for count in (None, 4):
            print(f"\n{optimizer}, {examples} images, {steps} steps, virtual_workers = {count or 'NULL'}")
            for workers in (1, 2, 3, 4):
                bits, metrics = train(seed_network(optimizer), workers, count)
                print(
                    f"  {workers} workers: accuracy {metrics['accuracy']:.5f}, val_accuracy "
                    f"{metrics['val_accuracy']:.4f}, weights {bits}",
                    flush=True,
                )
    print("\nDropout and BatchNormalization, val_accuracy by seed")
    for count in (1, 4, 8):
        found = [train(random_network, 1, count, seed)[1]["val_accuracy"] for seed in (1, 2, 3)]
        print(f"  virtual_workers = {count}: " + " ".join(f"{value:.4f}" for value in found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *[*map(int, sys.argv[2:4]), *(12_000, 2)[len(sys.argv) - 2 :]])
