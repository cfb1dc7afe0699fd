"""The networks of gpu.py: the CNN of the original example, ResNet-50 on random images, a transformer.

With ``tiny`` they are small enough for a test on CPUs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networks
import numpy as np

#: The transformer: layers, tokens, width, heads, width of the dense layer.
BASE = {"depth": 12, "tokens": 128, "width": 768, "heads": 12, "hidden": 3072}
SMALL = {"depth": 2, "tokens": 8, "width": 16, "heads": 2, "hidden": 32}


@dataclass(frozen=True)
class Network:
    """A network: its batch for one GPU, the steps of an epoch, its inputs and its layers."""

    batch: int
    steps: int
    inputs: Callable[[np.random.Generator, int, bool], np.ndarray]
    layers: Callable[[Any, bool], Any]


def _seed_inputs(rng: np.random.Generator, count: int, tiny: bool) -> np.ndarray:
    return rng.integers(0, 256, (count, 28, 28, 1), dtype=np.uint8)


def _seed(keras: Any, tiny: bool) -> Any:
    return networks.NETWORKS["seed"].layers(keras, None)


def _images(rng: np.random.Generator, count: int, tiny: bool) -> np.ndarray:
    size = 32 if tiny else 224
    return rng.integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def _resnet(keras: Any, tiny: bool) -> Any:
    if tiny:
        return networks.NETWORKS["resnet"].layers(keras, None)
    body = keras.applications.ResNet50(weights=None, classes=1000, classifier_activation=None)
    return keras.Sequential([keras.layers.Rescaling(1 / 255), body])


def _texts(rng: np.random.Generator, count: int, tiny: bool) -> np.ndarray:
    tokens = (SMALL if tiny else BASE)["tokens"]
    return rng.integers(0, networks.WORDS, (count, tokens), dtype=np.int32)


def _transformer(keras: Any, tiny: bool) -> Any:
    return networks.transformer(keras, None, **(SMALL if tiny else BASE))


NETWORKS = {
    "seed": Network(batch=256, steps=100, inputs=_seed_inputs, layers=_seed),
    "resnet50": Network(batch=64, steps=10, inputs=_images, layers=_resnet),
    "transformer": Network(batch=32, steps=10, inputs=_texts, layers=_transformer),
}


def data(name: str, workers: int, *, tiny: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the inputs and the classes of an epoch, and the global batch."""
    network, rng = NETWORKS[name], np.random.default_rng(0)
    batch = (4 if tiny else network.batch) * workers
    count = batch * (2 if tiny else network.steps)
    return network.inputs(rng, count, tiny), rng.integers(0, networks.CLASSES, count), batch


def model(name: str, *, dtype: str = "float32", xla: bool | str = "auto", tiny: bool = False) -> Any:
    """Return a network, compiled."""
    import keras

    keras.config.set_dtype_policy(dtype)
    made = NETWORKS[name].layers(keras, tiny)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.001, momentum=0.9), loss, metrics=["accuracy"], jit_compile=xla)
    return made
