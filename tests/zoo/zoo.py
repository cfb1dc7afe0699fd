"""Common parts of the zoo's models: a dozen examples in batches of four, the last with three."""

import functools
from typing import Any

import keras
import numpy as np
from case import case

ROWS = "each worker normalizes with its own rows"
DRAWS = "each worker draws its own random numbers"
OF_BATCH = "its loss is normalized over the batch, so that the shares of a batch have other losses"

#: The bound of models that enlarge the rounding of sums in another order. With virtual workers it is 0.
ROUNDED = 1e-5

EXAMPLES = 11

rng = np.random.default_rng(0)

zoo = functools.partial(case, batch=4, limit=400.0)
large = functools.partial(zoo, epochs=1)


def images(side: int) -> np.ndarray:
    return np.random.default_rng(side).uniform(size=(EXAMPLES, side, side, 3)).astype("float32")


def labelled_images(side: int) -> tuple[np.ndarray, np.ndarray]:
    return images(side), np.arange(EXAMPLES) % 3


def compiled(
    model: keras.Model, loss: Any = "sparse_categorical_crossentropy", **arguments: Any
) -> keras.Model:
    """A model that gives probabilities, or what ``loss`` takes."""
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9), loss, **arguments)
    return model
