"""Keras's own fit under the strategy: worker 2 is killed while it trains, and the others end by that."""

import os
import signal

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy(heartbeat_timeout=6)

import keras  # noqa: E402
import numpy as np  # noqa: E402


def at_epoch(epoch: int, logs: object) -> None:
    if strategy.worker_index == 2 and epoch == 1:
        os.kill(os.getpid(), signal.SIGKILL)


with strategy.scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
x = np.ones((96, 4), "float32")
stop = keras.callbacks.LambdaCallback(on_epoch_end=at_epoch)
model.fit(x, x[:, :1], epochs=100_000, verbose=0, callbacks=[stop])
