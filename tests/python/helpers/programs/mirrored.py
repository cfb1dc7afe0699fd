"""Trains on one device and on two of this process, and tries what two cannot do.

Usage: mirrored.py FILE   (which gets what was found, as JSON)
"""

import json
import os
import sys
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from heard import Heard, refused

import tfdistr

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
DEVICES = ["cpu:0", "/device:CPU:1"]

rng = np.random.default_rng(0)
X = rng.normal(size=(45, 6)).astype("float32")  # batches of 16, 16, and 13
Y = rng.integers(0, 3, 45)

heard = Heard()


def model(optimizer="sgd", **compiled):
    network = keras.Sequential([keras.layers.Dense(8, "relu"), keras.layers.Dense(3, "softmax")])
    network.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"], **compiled)
    return network


def fit(make=model, x=X, y=Y, **arguments):
    return tfdistr.distributed_fit(
        make, x, y, **{"batch_size": 16, "epochs": 2, "seed": 1, "verbose": 0} | arguments
    )


def two(**arguments):
    return fit(strategy=tfdistr.mirrored(devices=DEVICES), **arguments)


def sparse():
    rows = tf.sparse.from_dense(np.where(X > 0, X, 0))
    return tf.data.Dataset.from_tensor_slices((rows, Y)).batch(16)


class Centred(keras.layers.Layer):
    """Subtracts the mean of all rows."""

    def call(self, rows):
        return rows - keras.ops.mean(tfdistr.gather(rows), axis=0)


def gathering() -> dict[str, object]:
    """How far a model that gathers is from one device, and what the training leaves in its parts."""
    models = []
    for strategy in (tfdistr.OneDeviceStrategy("cpu:0"), tfdistr.MirroredStrategy(DEVICES)):
        keras.utils.set_random_seed(1)
        with strategy.scope():
            network = keras.Sequential([keras.Input((6,)), keras.layers.Dense(8, "tanh"), Centred()])
            loss = keras.losses.MeanSquaredError(name="spread")
            loss.call = lambda y, p: keras.ops.mean(keras.ops.square(tfdistr.gather(p)), axis=1) + 0.0 * y[:1]
            network.compile("sgd", loss)
        network.fit(X, np.zeros((45,), "float32"), batch_size=16, shuffle=False, verbose=0)
        models.append(network)
    outputs = [network.predict(X[:32], batch_size=32, verbose=0) for network in models]
    trained = models[1]
    return {
        "apart": float(np.abs(outputs[0] - outputs[1]).max()),
        "left": [name for name in ("apply", "_all_reduce_sum_gradients") if name in vars(trained.optimizer)],
    }


def mean_of_rows() -> list[str]:
    """What is said of a step whose loss is the mean over the rows of a device."""
    strategy = tfdistr.MirroredStrategy(DEVICES)
    with strategy.scope():
        network = model()
        network.build((None, 6))

    @tf.function
    def step():
        def replica():
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(network.loss_of_each(Y[:4], network(X[:4])))
            weights = network.trainable_variables
            network.optimizer.apply(tape.gradient(loss, weights), weights)

        strategy.run(replica)

    network.loss_of_each = keras.losses.SparseCategoricalCrossentropy(reduction="none")
    step()
    return [heard.lines.pop()]


class Counting(tf.distribute.ReductionToOneDevice):
    """Sums as its parent does, and counts the calls."""

    calls = 0

    def batch_reduce_implementation(self, *args, **kwargs):
        self.calls += 1
        return super().batch_reduce_implementation(*args, **kwargs)


def by_other_ops(ops) -> float:
    """How far the loss and the predictions are from those without ``cross_device_ops``."""
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(16)
    trained = []
    for given in (None, ops):
        keras.utils.set_random_seed(1)
        with tfdistr.MirroredStrategy(DEVICES, given).scope():
            network = model()
        network.fit(dataset, epochs=1, verbose=0)
        trained.append(network.predict(X, verbose=0))
    return float(np.abs(trained[0] - trained[1]).max())


def apart(one, other) -> float:
    pairs = zip(one.model.get_weights(), other.model.get_weights(), strict=True)
    numbers = [float(np.abs(a - b).max()) for a, b in pairs]
    histories = zip(one.history.values(), other.history.values(), strict=True)
    return max(numbers + [float(np.abs(np.subtract(a, b)).max()) for a, b in histories])


counting = Counting()
alone = fit()
on_device = fit(strategy=tfdistr.one_device(device="cpu:1"))
mirrored = two()
growing = two(batch_size=tfdistr.per_worker(8, scale_learning_rate="linear"), epochs=1)
os.environ["XLA_FLAGS"] = f"--xla_dump_to={sys.argv[1]}.xla"  # read when XLA first compiles
compiled = two(make=lambda: model(jit_compile=True))
found = {
    "one device": apart(alone, on_device),
    "device": on_device.model.variables[0].value.device,
    "params": [mirrored.params[name] for name in ("strategy", "workers")],
    "per worker": [growing.params[name] for name in ("batch_size", "learning_rate_factor")],
    "jit_compile": apart(alone, compiled),
    "xla": [mirrored.params["xla"], compiled.params["xla"]],
    "warnings": heard.lines,
    "cross_device_ops": {
        "counting": by_other_ops(counting),
        "hierarchical copy": by_other_ops(tf.distribute.HierarchicalCopyAllReduce(num_packs=2)),
    },
    "calls": counting.calls,
    "gathering": gathering(),
    "mean of rows": mean_of_rows(),
    "accumulation": refused(
        lambda: two(make=lambda: model(keras.optimizers.SGD(gradient_accumulation_steps=2)))
    ),
    "average": refused(lambda: two(make=lambda: model(keras.optimizers.SGD(use_ema=True)))),
    "in a scale": refused(lambda: two(make=lambda: model(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(use_ema=True))
    ))),
    "executions": refused(lambda: two(make=lambda: model(steps_per_execution=2))),
    "sparse": refused(lambda: two(x=sparse, y=None, batch_size=None)),
}  # fmt: skip
Path(sys.argv[1]).write_text(json.dumps(found))
