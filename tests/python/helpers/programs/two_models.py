"""Trains two models, one after the other, as one of two workers, of which one has lost the first model.

Usage: two_models.py
"""

import gc

import keras
import numpy as np

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy(virtual_workers=2, start_timeout=60)
X = np.ones((8, 3), "float32")


def fitted() -> keras.Model:
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(X, X[:, :1], batch_size=4, verbose=0)
    return model


first = fitted()
if not strategy.is_chief:
    del first
    keras.backend.clear_session()
    gc.collect()
fitted()
