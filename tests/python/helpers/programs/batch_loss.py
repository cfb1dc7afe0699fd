"""Trains by Keras's fit() with a loss of its own, on data whose order changes with each pass.

Usage: batch_loss.py FILE LOSS DATA   (the name of the loss; "dataset" or "PyDataset"; FILE gets the weights)

With the loss "centred", a layer uses several rows at once.
"""

import sys

import keras
import numpy as np
import tensorflow as tf

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy(start_timeout=60)
keras.utils.set_random_seed(1)


def batch_loss(y_true, y_pred):
    return keras.ops.sum(keras.ops.square(keras.ops.mean(y_pred - y_true, 0)))


def row_loss(y_true, y_pred):
    noise = keras.random.uniform(())  # by the global generator, which the first use creates
    return keras.ops.mean(keras.ops.square(y_pred - y_true)) + 0.0 * noise


def centred(y_true, y_pred):
    return keras.ops.mean(keras.ops.square(y_pred - y_true))


class Centred(keras.layers.Layer):
    def call(self, inputs):
        return inputs - keras.ops.mean(inputs, 0)


def rows(number):
    return np.float32(number / 4 + np.arange(12).reshape(4, 3) / 16)


class Batches(keras.utils.PyDataset):
    """Keras shuffles its batches by Python's random numbers."""

    def __len__(self):
        return 4

    def __getitem__(self, number):
        return rows(number), np.ones((4, 2), "float32")


with strategy.scope():
    parts = [Centred()] if sys.argv[2] == "centred" else []
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), *parts])
    model.compile(keras.optimizers.SGD(0.5), globals()[sys.argv[2]])
indices = tf.data.Dataset.range(8).shuffle(8, seed=1)
data = indices.map(lambda i: (tf.fill([3], tf.cast(i, tf.float32) / 8), tf.ones([2])))
with strategy.scope():  # as some scripts do
    model.fit(Batches() if sys.argv[3] == "PyDataset" else data.batch(4), epochs=3, verbose=0)
    other = keras.layers.Dense(1)
    other.build((3,))  # its weights are those of one worker
if tfdistr.is_chief():
    np.save(sys.argv[1], np.concatenate([model.get_weights()[0], other.get_weights()[0]], axis=1))
