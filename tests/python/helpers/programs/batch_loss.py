"""Trains by Keras's fit() with a loss of its own, on data whose order changes with each pass.

Usage: batch_loss.py FILE LOSS   (the name of the loss; FILE gets the weights)
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy(start_timeout=60)
keras.utils.set_random_seed(1)


def batch_loss(y_true, y_pred):
    return keras.ops.sum(keras.ops.square(keras.ops.mean(y_pred - y_true, 0)))


def row_loss(y_true, y_pred):
    return keras.ops.mean(keras.ops.square(y_pred - y_true))


with strategy.scope():
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    model.compile(keras.optimizers.SGD(0.5), globals()[sys.argv[2]])
indices = tf.data.Dataset.range(8).shuffle(8, seed=1)
data = indices.map(lambda i: (tf.fill([3], tf.cast(i, tf.float32) / 8), tf.ones([2])))
model.fit(data.batch(4), epochs=3, verbose=0)
if tfdistr.is_chief():
    np.save(sys.argv[1], model.get_weights()[0])
