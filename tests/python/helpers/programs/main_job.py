"""A user's script: functions of its own in __main__, and lambdas. Usage: main_job.py RESULT"""

import sys

import keras
import numpy as np
import tensorflow as tf

import tfdistr

rng = np.random.default_rng(0)
CENTRES = rng.normal(size=(3, 6)).astype("float32")  # captured by the functions below
Y = rng.integers(0, 3, size=101)
NOISE = tf.constant(0.1)  # that TensorFlow is in use already must not matter to the workers


def model() -> keras.Model:
    """Not built yet, and with a layer that is a function."""
    layers = [
        keras.layers.Lambda(lambda x: x - CENTRES.mean()),
        keras.layers.Dense(8, "relu"),
        keras.layers.Dense(3),
    ]
    made = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.Adam(0.05), loss, metrics=["accuracy"])
    return made


def example(label: tf.Tensor) -> tuple:
    noise = tf.random.stateless_normal([6], tf.stack([label, 0])) * NOISE
    return tf.gather(CENTRES, label) + noise, label


ARGUMENTS = {
    "x": lambda ctx: ctx.shard(tf.data.Dataset.from_tensor_slices(Y)).map(example),
    "validation_data": lambda: tf.data.Dataset.from_tensor_slices(Y[:20]).map(example),
    "batch_size": 16,
    "epochs": 3,
    "seed": 11,
}

if __name__ == "__main__":
    fit = tfdistr.distributed_fit(model, cluster=tfdistr.local_cluster(workers=2), verbose=2, **ARGUMENTS)
    arrays = {f"weight_{number}": weight for number, weight in enumerate(fit.model.get_weights())}
    arrays |= {name: np.array(values) for name, values in fit.history.items()}
    np.savez(sys.argv[1], run_dir=fit.run_dir, status=[worker["status"] for worker in fit.workers], **arrays)
