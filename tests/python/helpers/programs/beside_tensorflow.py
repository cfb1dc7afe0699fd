"""Trains on two devices of this process, with TensorFlow's ``MirroredStrategy`` and with that of tfdistr.

Usage: beside_tensorflow.py FILE

FILE gets, for each case, how far both are from one device, and from each other, as JSON.
"""

import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.pop("TF_CONFIG", None)  # TensorFlow cannot read an empty one

import keras
import numpy as np
import tensorflow as tf

import tfdistr

(cpu,) = tf.config.list_physical_devices("CPU")
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
DEVICES = ["cpu:0", "cpu:1"]
ONE = tfdistr.OneDeviceStrategy("cpu:0")
STOCK, OWN = tf.distribute.MirroredStrategy(DEVICES), tfdistr.MirroredStrategy(DEVICES)

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(45, 6)).astype("float32"), rng.integers(0, 3, 45)  # batches of 16, 16 and 13
LOSS = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
Values = list[np.ndarray]


def network(*between):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(8, "tanh"), *(layer() for layer in between), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input((6,)), *layers])


def fit(strategy, *between, rows=48, jit=False, steps=1, **optimizer) -> Values:
    """The weights, the history and the evaluated loss."""
    x, y = np.resize(X, (rows, 6)), np.resize(Y, rows)
    with strategy.scope():
        model = network(*between)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        sgd = keras.optimizers.SGD(0.1, **optimizer)
        model.compile(sgd, loss, jit_compile=jit, steps_per_execution=steps)
    history = model.fit(x, y, batch_size=16, shuffle=False, epochs=2, verbose=0).history["loss"]
    evaluated = model.evaluate(x, y, batch_size=16, verbose=0)
    return [*model.get_weights(), np.array(history), np.array(evaluated)]


def loop(strategy, **optimizer) -> Values:
    """The weights and the losses of a custom training loop."""
    with strategy.scope():
        model, sgd = network(), keras.optimizers.SGD(0.1, **optimizer)
        sgd.build(model.trainable_variables)
    batches = tfdistr.distribute(tf.data.Dataset.from_tensor_slices((X, Y)).batch(16), strategy)

    def step(batch):
        x, y = batch
        with tf.GradientTape() as tape:
            loss = tfdistr.average_loss(LOSS(y, model(x, training=True)))
        sgd.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    @tf.function
    def epoch():
        total = 0.0
        for batch in batches:
            total += strategy.reduce("SUM", strategy.run(step, args=(batch,)), axis=None)
        return total

    losses = [float(epoch()) for _ in range(2)]
    return [*model.get_weights(), np.array(losses)]


def apart(one: Values, other: Values) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))


def compared(train, *arguments, **options) -> dict[str, float]:
    one, stock, own = (train(strategy, *arguments, **options) for strategy in (ONE, STOCK, OWN))
    return {"tensorflow": apart(stock, one), "tfdistr": apart(own, one), "both": apart(own, stock)}


def errors(**options) -> dict[str, str | None]:
    """The class of the error of each strategy."""
    found: dict[str, str | None] = {}
    for name, strategy in (("tensorflow", STOCK), ("tfdistr", OWN)):
        try:
            fit(strategy, **options)
            found[name] = None
        except Exception as error:
            found[name] = type(error).__name__
    return found


def another(strategy) -> str | None:
    """The class of the error if another strategy of the process trains another model."""
    try:
        fit(strategy, keras.layers.LayerNormalization)
    except Exception as error:
        return type(error).__name__
    return None


def draw_alike(strategy) -> bool:
    """Whether the devices of a step draw the same random numbers."""
    with strategy.scope():
        dropout = keras.layers.Dropout(0.5)
    drawn = strategy.run(tf.function(lambda: dropout(tf.ones([64]), training=True)))
    first, second = strategy.experimental_local_results(drawn)
    return np.array_equal(first, second)


layers = keras.layers
found = {
    "equal shares": compared(fit),
    "short batch": compared(fit, rows=45),
    "clipping": compared(fit, global_clipnorm=0.1),
    "batch normalization": compared(fit, layers.BatchNormalization),
    "synchronized": compared(fit, lambda: layers.BatchNormalization(synchronized=True)),
    "dropout": compared(fit, lambda: layers.Dropout(0.5)),
    "draw alike": {"tensorflow": draw_alike(STOCK), "tfdistr": draw_alike(OWN)},
    "loop": compared(loop),
    "clipping in a loop": compared(loop, global_clipnorm=0.1),
    "accumulation": errors(gradient_accumulation_steps=2),
    "averages": errors(use_ema=True),
    "executions": errors(steps=3),
    "XLA": errors(jit=True),
    "second strategy": {
        "tfdistr": another(tfdistr.MirroredStrategy(DEVICES)),
        "tensorflow": another(tf.distribute.MirroredStrategy(DEVICES)),
    },
}
Path(sys.argv[1]).write_text(json.dumps(found))
