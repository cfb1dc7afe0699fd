"""Data with fewer batches than a call of Keras's methods wants. On two workers: test_keras_calls.py."""

import warnings
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdistr

X, Y = np.ones([20, 4], "float32"), np.ones([20, 1], "float32")
DATA = tf.data.Dataset.from_tensor_slices((X, Y)).batch(8)  # three batches
UNKNOWN = DATA.filter(lambda x, y: True)
EPOCH = "An epoch of fit() ended early: the data has {} batches for steps_per_epoch=5{}. Leave "
EPOCH += "`steps_per_epoch` out, or repeat() the dataset."


@pytest.fixture(params=["workers", "devices"])
def model(request, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "")
    workers = request.param == "workers"
    strategy = tfdistr.MultiWorkerMirroredStrategy() if workers else tfdistr.MirroredStrategy(["cpu:0"])
    with strategy.scope():
        made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        made.compile("sgd", "mse")
    return made


def said(call: Callable[..., Any], *args: Any, **options: Any) -> list[str]:
    """What a call warns of; Keras also warns of data that it does not shuffle."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(*args, verbose=0, **options)
    return [str(warning.message) for warning in caught if "shuffle" not in str(warning.message)]


@pytest.mark.parametrize("data", [(DATA,), (UNKNOWN,), (X, Y)], ids=["dataset", "unknown size", "arrays"])
def test_fit_says_how_many_batches_there_are(model, data):
    options = {"batch_size": 8} if len(data) == 2 else {}
    assert said(model.fit, *data, steps_per_epoch=5, epochs=2, **options) == [
        EPOCH.format("only 3", " and 2 epochs")
    ]


def test_batches_that_are_counted_by_several_steps_get_no_number(model):
    model.compile("sgd", "mse", steps_per_execution=2)
    assert said(model.fit, UNKNOWN, steps_per_epoch=5) == [EPOCH.format("too few", "")]


def test_evaluate_predict_and_validation_say_so(model):
    assert said(model.evaluate, DATA, steps=9) == [
        "evaluate() ended early: the data has only 3 batches for steps=9. Leave `steps` out, or repeat() the "
        "dataset."
    ]
    assert said(model.predict, DATA, steps=9) == [
        "predict() ended early: the data has only 3 batches for steps=9. Leave `steps` out, or repeat() the "
        "dataset."
    ]
    assert said(model.fit, DATA, validation_data=DATA, validation_steps=9, epochs=2) == [
        "A validation ended early: the data has only 3 batches for validation_steps=9. Leave "
        "`validation_steps` out, or repeat() the dataset."
    ]


def test_data_that_is_long_enough_is_no_warning(model):
    assert said(model.fit, DATA.repeat(), steps_per_epoch=5, epochs=2) == []
    assert said(model.fit, UNKNOWN, epochs=2) == []
