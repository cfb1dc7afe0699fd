"""The network and the data of the benchmark, and the run through tfdistr from Python."""

from __future__ import annotations

import argparse

import numpy as np

EXAMPLES = 12_800
EPOCHS = 8
PER_WORKER_BATCH = 64


def data() -> tuple[np.ndarray, np.ndarray]:
    """Images of the size of MNIST's; what they show does not matter for speed."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (EXAMPLES, 28, 28, 1), dtype=np.uint8)
    return images, rng.integers(0, 10, EXAMPLES)


def model(keras: object = None) -> object:
    """The convolutional network of the original 4-worker example: 347,146 weights."""
    if keras is None:
        import keras
    layers = keras.layers
    network = keras.Sequential([
        layers.Rescaling(1 / 255),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(64, activation="relu"),
        layers.Dense(10, activation="softmax"),
    ])  # fmt: skip
    network.compile(
        keras.optimizers.SGD(learning_rate=0.001), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return network


if __name__ == "__main__":
    import time

    import tfdistr

    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--run-dir", required=True)
    given = parser.parse_args()
    x, y = data()
    print(time.time())
    tfdistr.distributed_fit(
        model, x, y, cluster=tfdistr.local_cluster(given.workers), per_worker_batch_size=PER_WORKER_BATCH,
        epochs=EPOCHS, seed=1, verbose=0, run_dir=given.run_dir,
    )  # fmt: skip
