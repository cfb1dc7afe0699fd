"""All cases, and one for devices and virtual workers (test_equality.py, programs/virtual.py)."""

import keras
import numpy as np
from case import case
from cases import CASES as CASES
from cases_of_own_steps import WANTED, Clipped, compiled
from models import layers


class ClippedRows(Clipped):
    """Clips the rows of an embedding, some of which occur several times, as TensorFlow gives them."""

    def __init__(self) -> None:
        inputs = keras.Input((3,), dtype="int32")
        rows = layers.GlobalAveragePooling1D()(layers.Embedding(5, 4)(inputs))
        super().__init__(inputs, layers.Dense(1)(rows))


@case(data=(np.random.default_rng(6).integers(0, 5, size=(101, 3)), WANTED))
def clipped_rows_of_an_embedding():
    return compiled(ClippedRows())
