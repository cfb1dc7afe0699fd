"""Trains small models in a loop of its own, with the loss helpers.

Usage: losses.py FILE            (one worker of the cluster of TF_CONFIG)
       losses.py FILE REPLICAS   (stock MirroredStrategy, on so many devices of this process)

Writes, for each case and each way to make the loss, the largest difference of the weights to those of a plain
loop without a strategy, and what the helpers gave and refused.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tensorflow as tf
from heard import refused

import tfdistr

if len(sys.argv) > 2:
    del os.environ["TF_CONFIG"]  # TensorFlow cannot read an empty one
    devices = [tf.config.LogicalDeviceConfiguration()] * int(sys.argv[2])
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(int(sys.argv[2]))])
else:
    strategy = tfdistr.make_strategy(start_timeout=60)

import keras

BATCH, EPOCHS = 8, 2
Loss = Callable[[tf.Tensor, keras.Model, tf.Tensor], tf.Tensor]
rng = np.random.default_rng(0)
X = rng.normal(size=(21, 4, 3)).astype("float32")
IMAGES = rng.normal(size=(21, 4, 2)).astype("float32")
WEIGHTS = rng.uniform(0.5, 1.5, size=21).astype("float32")


def network(regularizer: str | None = None) -> keras.Model:
    """Each of 4 positions, with 3 features, gets 2 numbers."""
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(5, "tanh", kernel_regularizer=regularizer), keras.layers.Dense(2)]
    return keras.Sequential([keras.Input((4, 3)), *layers])


def plain(losses: tf.Tensor, model: keras.Model, weights: tf.Tensor) -> tf.Tensor:
    """What one worker minimizes, in so many words."""
    per_example = tf.reduce_mean(tf.reshape(losses, [tf.shape(losses)[0], -1]), axis=1)
    return tf.reduce_mean(per_example * weights) + sum(model.losses)


def right(losses: tf.Tensor, model: keras.Model, weights: tf.Tensor) -> tf.Tensor:
    return tfdistr.average_loss(losses, weights) + tfdistr.regularization_loss(model.losses)


def full_size(losses: tf.Tensor, model: keras.Model, weights: tf.Tensor) -> tf.Tensor:
    """With the batch size given, as one can where all batches are full."""
    return tfdistr.average_loss(losses, weights, BATCH) + tfdistr.regularization_loss(model.losses)


# name: (examples, regularizer, ways to make the loss)
CASES = {
    "even": (16, None, (right, full_size)),
    "uneven last batch, L2": (21, "l2", (right,)),
    "last batch of one": (17, None, (right,)),
    "one example": (1, None, (right,)),
}


def stepper(
    model: keras.Model, optimizer: keras.optimizers.Optimizer, loss_of: Loss
) -> Callable[..., tf.Tensor]:
    def step(batch: tuple) -> tf.Tensor:
        x, y, weights = batch
        with tf.GradientTape() as tape:
            losses = keras.losses.mean_squared_error(y, model(x, training=True))
            loss = loss_of(losses, model, weights)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return step


def batches(examples: int) -> tf.data.Dataset:
    arrays = tuple(array[:examples] for array in (X, IMAGES, WEIGHTS))
    return tf.data.Dataset.from_tensor_slices(arrays).shuffle(21, seed=3).batch(BATCH)


def alone(case: str, loss_of: Loss) -> tuple[list[np.ndarray], list[float]]:
    """Weights and loss of each step of a loop without a strategy."""
    examples, regularizer, _ = CASES[case]
    model, optimizer = network(regularizer), keras.optimizers.SGD(0.1, momentum=0.9)
    step = stepper(model, optimizer, loss_of)
    dataset = batches(examples)
    losses = [float(step(batch)) for _ in range(EPOCHS) for batch in dataset]
    return model.get_weights(), losses


def together(case: str, loss_of: Loss, *, inside: bool = False) -> tuple[list[np.ndarray], list[float]]:
    """The same under the strategy, with the loop over the batches in or outside of the tf.function."""
    examples, regularizer, _ = CASES[case]
    with strategy.scope():
        model, optimizer = network(regularizer), keras.optimizers.SGD(0.1, momentum=0.9)
        optimizer.build(model.trainable_variables)
    step = stepper(model, optimizer, loss_of)
    dataset = tfdistr.distribute(batches(examples), strategy)

    def one(batch: tuple) -> tf.Tensor:
        return strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)

    if not inside:
        one = tf.function(one)
        losses = [float(one(batch)) for _ in range(EPOCHS) for batch in dataset]
        return model.get_weights(), losses

    @tf.function
    def epoch() -> tf.Tensor:
        total = 0.0
        for batch in dataset:
            total += one(batch)
        return total

    losses = [float(epoch()) for _ in range(EPOCHS)]
    return model.get_weights(), losses


def difference(one: list[np.ndarray], other: list[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


found: dict[str, dict[str, float]] = {}
for case, (*_, ways) in CASES.items():
    weights, losses = alone(case, plain)
    found[case] = {}
    for way in ways:
        received, received_losses = together(case, way)
        found[case][way.__name__] = difference(received, weights)
        if way is right:
            found[case]["losses"] = float(np.abs(np.subtract(received_losses, losses)).max())
    found[case]["without a strategy"] = difference(alone(case, right)[0], weights)
weights, losses = alone("last batch of one", plain)
received, received_losses = together("last batch of one", right, inside=True)
sums = np.reshape(losses, [EPOCHS, -1]).sum(1)
found["loop in a tf.function"] = {
    "right": difference(received, weights),
    "losses": float(np.abs(np.subtract(received_losses, sums)).max()),
}


# --- Values

replicas = strategy.num_replicas_in_sync


def on_replicas(function: Callable[[], tf.Tensor]) -> float:
    return float(strategy.reduce("SUM", strategy.run(tf.function(function)), axis=None))


def half() -> tf.Tensor:
    """16 losses of 60,000 on each replica: a sum that float16 does not have."""
    return tfdistr.average_loss(tf.fill([16], tf.constant(60000.0, tf.float16)))


def nothing() -> tf.Tensor:
    """No rows on any replica: what is added to the gradient is the gradient of 0."""
    weight = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(weight)
        loss = tfdistr.average_loss(weight * tf.zeros([0, 3]))
    return loss + tape.gradient(loss, weight)


def unequal() -> tf.Tensor:
    """Replica r has r + 1 losses of r, of unknown rank when the function is traced."""
    number = tf.distribute.get_replica_context().replica_id_in_sync_group
    losses = tf.fill([number + 1, 2], tf.cast(number, tf.float64))
    losses = tf.numpy_function(lambda x: x, [losses], tf.float64)
    return tfdistr.average_loss(losses)


values = {
    "half": on_replicas(half),
    "nothing": on_replicas(nothing),
    "unequal": on_replicas(unequal),
    "regularization": on_replicas(lambda: tfdistr.regularization_loss([tf.constant(1.0), 2.0])),
    "regularization, a tensor": on_replicas(lambda: tfdistr.regularization_loss(tf.constant([1.0, 3.0]))),
    "regularization, none": on_replicas(lambda: tfdistr.regularization_loss([])),
    "regularization, types": on_replicas(
        lambda: tfdistr.regularization_loss([tf.constant(1.0, tf.float16), tf.constant(2.0, tf.float64)])
    ),
}
with strategy.scope():
    errors = {
        "average_loss": refused(lambda: tfdistr.average_loss(tf.ones([2])))[2],
        "regularization_loss": refused(lambda: tfdistr.regularization_loss([1.0]))[2],
    }
Path(sys.argv[1]).write_text(json.dumps({"cases": found, "values": values, "errors": errors}))
