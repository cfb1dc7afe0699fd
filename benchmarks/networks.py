"""The networks that the benchmarks train, and their data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

PER_WORKER_BATCH = 64
CLASSES = 10


@dataclass(frozen=True)
class Network:
    """A convolutional network, and how much is trained to measure it; the first epoch is left out."""

    title: str
    dense: int
    examples: int
    epochs: int

    @property
    def weights(self) -> int:
        """Number of weights, and so of gradients."""
        pooled = 13 * 13 * 32
        return 320 + (pooled + 1) * self.dense + (self.dense + 1) * CLASSES


NETWORKS = {
    "seed": Network("Seed CNN, that of the original 4-worker example", 64, examples=12_800, epochs=4),
    "wide": Network("The same with a 2048-wide dense layer", 2048, examples=768, epochs=4),
}


def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Images of the size of MNIST's; what they show does not matter for speed."""
    rng = np.random.default_rng(0)
    examples = NETWORKS[name].examples
    images = rng.integers(0, 256, (examples, 28, 28, 1), dtype=np.uint8)
    return images, rng.integers(0, CLASSES, examples)


def model(name: str, keras: Any = None) -> Any:
    """The network, compiled, of Keras 3 or of the module given."""
    if keras is None:
        import keras
    layers = keras.layers
    network = keras.Sequential([
        layers.Rescaling(1 / 255),
        layers.Conv2D(32, 3, activation="relu"),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(NETWORKS[name].dense, activation="relu"),
        layers.Dense(CLASSES, activation="softmax"),
    ])  # fmt: skip
    network.compile(
        keras.optimizers.SGD(learning_rate=0.001), "sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return network
