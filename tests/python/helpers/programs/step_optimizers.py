"""Trains a model as one of two workers, whose step does what only one worker can do.

Usage: step_optimizers.py KIND   ("in the step": it applies an optimizer that it makes; "global": one that a
variable of the program holds)
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy(start_timeout=60)
X = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")


class Model(keras.Model):
    def train_step(self, data):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(data[0]) ** 2)
        optimizer = keras.optimizers.SGD(0.1) if sys.argv[1] == "in the step" else of_program
        optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


with strategy.scope():
    inputs = keras.Input((4,))
    model = Model(inputs, keras.layers.Dense(2)(inputs))
    model.compile()
    of_program = keras.optimizers.SGD(0.1)
    of_program.build(model.trainable_weights)
model.fit(tf.data.Dataset.from_tensor_slices((X, X)).batch(8), verbose=0)
