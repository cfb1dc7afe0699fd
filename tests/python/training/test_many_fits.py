"""Many fits and predictions in one session."""

import keras
import numpy as np
import tensorflow as tf

import tfdistr

X = np.ones((8, 3), "float32")


def net() -> keras.Model:
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def test_tensorflow_does_not_warn_that_each_job_is_traced(caplog):
    logger = tf.get_logger()
    logger.addHandler(caplog.handler)
    try:
        for _ in range(7):  # the warning comes with the fifth
            fit = tfdistr.distributed_fit(net, X, X[:, 0], seed=1, verbose=0)
            tfdistr.distributed_fit(net, tf.data.Dataset.from_tensors((X, X[:, 0])), seed=1, verbose=0)
            fit.predict(X)
        logger.warning("shown")
    finally:
        logger.removeHandler(caplog.handler)
    assert {record.getMessage() for record in caplog.records if record.name == "tensorflow"} == {"shown"}
