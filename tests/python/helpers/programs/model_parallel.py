"""Trains a model with its layers on two devices of this process, and tries what cannot be.

Usage: model_parallel.py FILE   (which gets what was found, as JSON)
"""

import functools
import json
import os
import sys
from collections import Counter
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from heard import Heard, refused

import tfdistr

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
HALVES = {"embed": "cpu:0", "second": "cpu:1"}

rng = np.random.default_rng(0)
WORDS = rng.integers(0, 20, (45, 6))  # batches of 16, 16, and 13
Y = rng.integers(0, 3, 45)

heard = Heard()


def network(inputs=True, dropout=0.2):
    layers = keras.layers
    inner = keras.Sequential(
        [layers.Dense(8, "relu", name="inner"), layers.BatchNormalization(name="norm")], name="block"
    )
    parts = [
        layers.Embedding(20, 8, name="embed"), layers.LSTM(8, name="lstm"), inner, layers.Dropout(dropout),
        layers.Dense(8, "relu", name="second", kernel_regularizer="l2"), layers.Dense(3, name="last"),
    ]  # fmt: skip
    return keras.Sequential([*([keras.Input((6,), dtype="int32")] if inputs else []), *parts])


def model(optimizer=None, inputs=True, dropout=0.2, **compiled):
    made = network(inputs, dropout)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(optimizer or keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], **compiled)
    return made


def fit(make=model, **arguments):
    common = {"batch_size": 16, "epochs": 2, "seed": 1, "verbose": 0, "validation_data": (WORDS[:9], Y[:9])}
    return tfdistr.distributed_fit(make, WORDS, Y, **common | arguments)


def difference(fit_a, fit_b):
    """The largest difference of weights, of what the optimizer keeps, and of the history."""
    values = [
        [*fit.model.get_weights(), *map(np.asarray, fit.model.optimizer.variables), *fit.history.values()]
        for fit in (fit_a, fit_b)
    ]
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in zip(*values, strict=True))


def halves(make=model, placement=HALVES, **arguments):
    return fit(make, strategy=tfdistr.model_parallel(placement=placement), **arguments)


class OwnStep(keras.Model):
    """A model whose step does more with its gradients than Keras's."""

    def __init__(self):
        super().__init__()
        self.net = network()

    def call(self, x, training=False):
        return self.net(x, training=training)

    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.optimizer.scale_loss(self.compute_loss(y=y, y_pred=self(x, training=True)))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply([tf.convert_to_tensor(g) * 0.5 for g in gradients], self.trainable_variables)
        return {"loss": loss}


def own_step():
    made = OwnStep()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss)
    return made


def by_xla(jit_compile):
    """A model without Dropout, whose random numbers XLA draws otherwise."""
    return model(keras.optimizers.SGD(0.1), dropout=0.0, jit_compile=jit_compile)


def clipping():
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, global_clipnorm=0.1, use_ema=True, ema_momentum=0.5)
    return model(optimizer)


def accumulating():
    return model(keras.optimizers.SGD(0.1, gradient_accumulation_steps=2), steps_per_execution=2)


def sixteen_bits():
    keras.config.set_dtype_policy("mixed_float16")
    try:
        return model()
    finally:
        keras.config.set_dtype_policy("float32")


def by_function(layer):
    return "cpu:1" if layer.name in ("norm", "last") else None


def where():
    """The devices of variables, and of operations of a step, after a training by Keras's own fit()."""
    strategy = tfdistr.make_strategy("model_parallel", placement=HALVES)
    keras.utils.set_random_seed(1)
    with strategy.scope():
        made = model(inputs=False)
    dataset = tf.data.Dataset.from_tensor_slices((WORDS, Y)).batch(16)
    strategy.place(made, dataset)
    made.fit(dataset, epochs=2, shuffle=False, verbose=0)
    keras.utils.set_random_seed(1)
    alone = model()
    alone.fit(dataset, epochs=2, shuffle=False, verbose=0)
    graph = tf.function(made.train_step).get_concrete_function(next(iter(dataset))).graph
    kinds = ("MatMul", "ReluGrad", "BiasAddGrad", "While", "AssignSubVariableOp")
    operations = Counter(f"{op.type} {op.device[-5:]}" for op in graph.get_operations() if op.type in kinds)
    slots = {v.path.split("/", 1)[1]: v.value.device[-5:] for v in made.optimizer.variables if "/" in v.path}
    return {
        "weights": {v.path.split("/", 1)[1]: v.value.device[-5:] for v in made.variables},
        "slots": slots,
        "operations": operations,
        "drop-in": max(
            float(np.abs(a - b).max()) for a, b in zip(made.get_weights(), alone.get_weights(), strict=True)
        ),
    }


def place(make, scope=False, train=False, twice=False):
    strategy = tfdistr.make_strategy("model_parallel", placement=HALVES)
    with strategy.scope():
        made = make()
        if scope:
            strategy.place(made)
    if twice:
        strategy.place(made)
    if train:
        made.fit(WORDS, Y, verbose=0)
    strategy.place(made)


def text():
    lookup = keras.layers.StringLookup(vocabulary=["a", "b"], name="lookup")
    dense = keras.layers.Dense(1, name="dense")
    made = keras.Sequential([keras.Input((1,), dtype="string"), lookup, keras.layers.Flatten(), dense])
    made.compile("sgd", "mse")
    return made


def of_text(**placement):
    return tfdistr.distributed_fit(
        text, np.array([["a"], ["b"]] * 4), np.ones(8), strategy=tfdistr.model_parallel(placement=placement),
        verbose=0, seed=1,
    )  # fmt: skip


if __name__ == "__main__":
    os.environ["XLA_FLAGS"] = f"--xla_dump_to={sys.argv[1]}.xla"  # read when XLA first compiles
    one = fit()
    found = {
        "halves": difference(halves(), one),
        "by function": difference(halves(placement=by_function), one),
        "own step": difference(halves(own_step), fit(own_step)),
        "clipping": difference(halves(clipping), fit(clipping)),
        "accumulating": difference(halves(accumulating), fit(accumulating)),
        "sixteen bits": difference(halves(sixteen_bits), fit(sixteen_bits)),
        "eagerly": difference(halves(lambda: model(run_eagerly=True)), one),
        "jit_compile": difference(
            halves(functools.partial(by_xla, True)), fit(functools.partial(by_xla, False))
        ),
        "unbuilt": difference(halves(lambda: model(inputs=False)), one),
        "text": len(of_text(dense="cpu:1").history["loss"]),
        "where": where(),
        "warnings": heard.lines,
        "table": refused(lambda: of_text(lookup="cpu:1")),
        "unknown": refused(lambda: halves(placement={"thrid": "cpu:0"})),
        "device": refused(lambda: halves(placement={"last": "gpu:0"})),
        "by function, a task": refused(lambda: halves(placement=lambda layer: "worker 0")),
        "by function, nonsense": refused(lambda: halves(placement=lambda layer: 7)),
        "not built": refused(lambda: place(lambda: model(inputs=False))),
        "placed": refused(lambda: place(model, twice=True)),
        "trained": refused(lambda: place(model, train=True)),
        "in the scope": refused(lambda: place(model, scope=True)),
    }
    Path(sys.argv[1]).write_text(json.dumps(found))
