"""Models made with and without the strategy's scope, as one worker of two.

Usage: outside_scope.py FOLDER   (writes FOLDER/<index>.json: what fit, evaluate and predict said)
       outside_scope.py unnoticed   (trains a model of which the strategy was not told)
"""

import json
import sys
from pathlib import Path

import numpy as np

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy(start_timeout=60)

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

X = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
Y = X[:, :1]


def build() -> keras.Model:
    keras.utils.set_random_seed(1)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)], name="net")


def compiled(model: keras.Model, metrics: list | None = None) -> keras.Model:
    model.compile(keras.optimizers.Adam(), "mse", metrics=metrics)
    return model


def said(call, *args, **kwargs) -> str | None:
    try:
        call(*args, verbose=0, **kwargs)
    except tfdistr.ArgumentError as error:
        return str(error)
    return None


def cases() -> dict[str, str | None]:
    outside, late, built_outside = compiled(build()), compiled(build()), build()
    found = {
        "outside": said(outside.fit, X, Y),
        "outside again": said(outside.fit, X, Y),
        "evaluate": said(outside.evaluate, X, Y),
        "predict": said(outside.predict, X),
    }
    with strategy.scope():
        found["fit inside"] = said(late.fit, X, Y)
        found["evaluate inside"] = said(outside.evaluate, X, Y)
        inside = build()
    metric = keras.metrics.MeanAbsoluteError(name="mae")
    with strategy.scope():
        compiled(built_outside)
        with_metric = compiled(build(), [metric])
        good = compiled(build(), [keras.metrics.MeanAbsoluteError(name="mae")])
    found["compiled inside"] = said(built_outside.fit, X, Y)
    found["metric outside"] = said(with_metric.fit, X, Y)
    found["compiled outside"] = said(compiled(inside).fit, X, Y)
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        alone = compiled(build())
    found["alone"] = said(alone.fit, X, Y)
    found["inside"] = said(good.fit, X, Y)
    return found


if sys.argv[1] == "unnoticed":
    keras.backend.clear_session()
    model = compiled(build())
    model.fit(X, Y, verbose=0)
    print("trained")
else:
    Path(sys.argv[1], f"{strategy.worker_index}.json").write_text(json.dumps(cases()))
