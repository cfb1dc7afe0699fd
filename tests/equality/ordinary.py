"""What the ordinary cases have in common."""

from typing import Any

import keras
import numpy as np
from case import X, Y, case
from models import compiled, layers, optimizers

rng = np.random.default_rng(5)
IMAGES = rng.uniform(size=(101, 8, 8, 3)).astype("float32")
PICTURES = (IMAGES, Y[:101])
SERIES = rng.normal(size=(101, 6, 4)).astype("float32")
TARGET = X[:101, :1] * X[:101, 1:2] + X[:101, 2:3]
NUMBERS = (X[:101], TARGET)


def ordinary(model: Any = None, **settings: Any) -> Any:
    """A case of which tfdistr must not warn."""
    return case(model, **({"quiet": True, "bound": 2e-6} | settings))


def model_of(shape: tuple[int, ...], *parts: layers.Layer, dtype: str = "float32") -> keras.Model:
    """A compiled classifier: its last layer has two logits."""
    return compiled(keras.Sequential([keras.Input(shape, dtype=dtype), *parts]), optimizers.SGD(0.1))


def regressor(model: keras.Model, optimizer: Any = None, **arguments: Any) -> keras.Model:
    model.compile(optimizer or optimizers.SGD(0.05), **({"loss": "mse", "metrics": ["mae"]} | arguments))
    return model
