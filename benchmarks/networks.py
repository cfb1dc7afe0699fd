"""The networks that the benchmarks train, in Keras, and their data. torch_networks.py has them in PyTorch.

The models are for Keras 3 on every backend and for Keras 2. What the data show does not matter for speed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

PER_WORKER_BATCH = 64
CLASSES = 10

#: Units of the dense layer of the two CNNs.
DENSE = {"seed": 64, "wide": 2048}
#: Filters of ResNet-14 in each of its stages, which have two blocks.
FILTERS = (16, 32, 64)
#: The transformer: words in the vocabulary, tokens of a text, width, heads, width of the dense layer, layers.
WORDS, TOKENS, WIDTH, HEADS, HIDDEN, LAYERS = 10_000, 64, 128, 4, 512, 2
#: The LSTM: steps of a series, values of a step, units.
STEPS, VALUES, UNITS = 50, 32, 128
#: The tabular network: rows of the table, their width, ids of an example, units of the dense layer.
ROWS, ROW_WIDTH, IDS, HEAD = 1_000_000, 16, 8, 64
#: The MLP: columns of the data, units of each dense layer.
COLUMNS, MLP_UNITS = 64, 256


@dataclass(frozen=True)
class Network:
    """A network, and how much is trained to measure it.

    Attributes:
        title: What it is, for tables.
        weights: Number of trainable weights, and so of gradients.
        examples: Examples of an epoch: a multiple of the global batch, so that all steps have the same shape.
        inputs: Draws the input of so many examples.
        layers: The model, whose last layer has an activation, in a module of Keras.
        optimizer: Its name in Keras and in PyTorch.
        learning_rate: Its learning rate.
        epochs: Epochs; the first one is not measured.
    """

    title: str
    weights: int
    examples: int
    inputs: Callable[[np.random.Generator, int], np.ndarray]
    layers: Callable[[Any, str | None], Any]
    optimizer: str = "SGD"
    learning_rate: float = 0.001
    epochs: int = 4


def data(name: str, examples: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and classes: the examples of an epoch, or the first so many, repeated if there are fewer."""
    rng = np.random.default_rng(0)
    network = NETWORKS[name]
    x, y = network.inputs(rng, network.examples), rng.integers(0, CLASSES, network.examples)
    if examples is None:
        return x, y
    rows = np.arange(examples) % len(x)
    return x[rows], y[rows]


def amount(name: str, workers: int, steps: int | None = None) -> tuple[int, int]:
    """How much is trained to measure the network.

    Args:
        name: The network.
        workers: Workers that share the examples.
        steps: Steps of two epochs, to train less; by default the network's examples and epochs.

    Returns:
        The examples of an epoch, and the number of epochs.
    """
    if steps:
        return steps * workers * PER_WORKER_BATCH, 2
    return NETWORKS[name].examples, NETWORKS[name].epochs


def model(name: str, keras: Any = None) -> Any:
    """The network, compiled, of Keras 3 or of the module given."""
    if keras is None:
        import keras
    network = NETWORKS[name]
    made = network.layers(keras, "softmax")
    optimizer = getattr(keras.optimizers, network.optimizer)(learning_rate=network.learning_rate)
    made.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made


def _images(size: int, channels: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, count: rng.integers(0, 256, (count, size, size, channels), dtype=np.uint8)


def _ids(below: int, length: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, count: rng.integers(0, below, (count, length), dtype=np.int32)


def _values(*shape: int) -> Callable[[np.random.Generator, int], np.ndarray]:
    return lambda rng, count: rng.standard_normal((count, *shape), dtype=np.float32)


def _cnn(name: str) -> Callable[[Any, str | None], Any]:
    """The CNN of the original example, with a dense layer of another width."""

    def layers(keras: Any, last: str | None) -> Any:
        layers = keras.layers
        return keras.Sequential([
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(DENSE[name], activation="relu"),
            layers.Dense(CLASSES, activation=last),
        ])  # fmt: skip

    return layers


def _cnn_weights(name: str) -> int:
    pooled = 13 * 13 * 32
    return 320 + (pooled + 1) * DENSE[name] + (DENSE[name] + 1) * CLASSES


def _resnet(keras: Any, last: str | None) -> Any:
    """ResNet-14 for CIFAR: a convolution, three stages of two blocks of two convolutions, a dense layer."""
    layers = keras.layers

    def convolution(x: Any, filters: int, size: int, strides: int) -> Any:
        x = layers.Conv2D(filters, size, strides, padding="same", use_bias=False)(x)
        return layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)

    inputs = keras.Input((32, 32, 3))
    x = layers.Rescaling(1 / 255)(inputs)
    x = layers.ReLU()(convolution(x, FILTERS[0], 3, 1))
    for stage, filters in enumerate(FILTERS):
        for block in range(2):
            smaller = stage > 0 and block == 0
            strides = 2 if smaller else 1
            y = layers.ReLU()(convolution(x, filters, 3, strides))
            y = convolution(y, filters, 3, 1)
            x = layers.ReLU()(layers.Add()([y, convolution(x, filters, 1, 2) if smaller else x]))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(inputs, layers.Dense(CLASSES, activation=last)(x))


def transformer(
    keras: Any, last: str | None, depth: int = LAYERS, tokens: int = TOKENS, width: int = WIDTH,
    heads: int = HEADS, hidden: int = HIDDEN,
) -> Any:  # fmt: skip
    """A classifier of texts: embeddings of words and positions, encoder layers, the mean over the tokens."""
    layers = keras.layers

    class Positions(layers.Layer):  # type: ignore[misc]
        def build(self, shape: Any) -> None:
            self.table = self.add_weight(name="table", shape=(tokens, width), initializer="random_normal")

        def call(self, inputs: Any) -> Any:
            return inputs + self.table

    def normalized(x: Any) -> Any:
        return layers.LayerNormalization(epsilon=1e-5)(x)

    inputs = keras.Input((tokens,), dtype="int32")
    x = Positions()(layers.Embedding(WORDS, width)(inputs))
    for _ in range(depth):
        x = normalized(layers.Add()([x, layers.MultiHeadAttention(heads, width // heads)(x, x)]))
        y = layers.Dense(width)(layers.Dense(hidden, activation="relu")(x))
        x = normalized(layers.Add()([x, y]))
    x = layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, layers.Dense(CLASSES, activation=last)(x))


def _lstm(keras: Any, last: str | None) -> Any:
    inputs = keras.Input((STEPS, VALUES))
    x = keras.layers.LSTM(UNITS)(inputs)
    return keras.Model(inputs, keras.layers.Dense(CLASSES, activation=last)(x))


def _tabular(keras: Any, last: str | None) -> Any:
    layers = keras.layers
    inputs = keras.Input((IDS,), dtype="int32")
    x = layers.Flatten()(layers.Embedding(ROWS, ROW_WIDTH)(inputs))
    x = layers.Dense(HEAD, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(CLASSES, activation=last)(x))


def _mlp(keras: Any, last: str | None) -> Any:
    layers = keras.layers
    inputs = keras.Input((COLUMNS,))
    x = layers.Dense(MLP_UNITS, activation="relu")(inputs)
    x = layers.Dense(MLP_UNITS, activation="relu")(x)
    return keras.Model(inputs, layers.Dense(CLASSES, activation=last)(x))


NETWORKS = {
    "seed": Network(
        title="Seed CNN, that of the original 4-worker example",
        weights=_cnn_weights("seed"), examples=12_800, inputs=_images(28, 1), layers=_cnn("seed"),
    ),
    "wide": Network(
        title="The same with a 2048-wide dense layer",
        weights=_cnn_weights("wide"), examples=768, inputs=_images(28, 1), layers=_cnn("wide"),
    ),
    "resnet": Network(
        title="ResNet-14 for CIFAR, with batch normalization",
        weights=175_258, examples=768, inputs=_images(32, 3), layers=_resnet,
    ),
    "transformer": Network(
        title="Transformer of 2 layers, 128 wide, 64 tokens, Adam",
        weights=1_686_026, examples=768, inputs=_ids(WORDS, TOKENS), layers=transformer, optimizer="Adam",
    ),
    "lstm": Network(
        title="LSTM of 128 units, 50 steps, Adam",
        weights=83_722, examples=3_840, inputs=_values(STEPS, VALUES), layers=_lstm, optimizer="Adam",
    ),
    "tabular": Network(
        title="Tabular data, an embedding of 1,000,000 rows, 8 of them an example",
        weights=16_008_906, examples=12_800, inputs=_ids(ROWS, IDS), layers=_tabular,
    ),
    "mlp": Network(
        title="MLP of 256 and 256 units, Adam",
        weights=85_002, examples=51_200, inputs=_values(COLUMNS), layers=_mlp, optimizer="Adam",
    ),
}  # fmt: skip
#: The networks of the measurements that are about CNNs alone.
CNNS = tuple(DENSE)
