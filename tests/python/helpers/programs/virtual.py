"""Tries what virtual workers refuse, one after the other, and writes what it was told.

Usage: virtual.py FILE [2 threads]

With "2 threads" TensorFlow is in use before, with two threads for an operation.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from heard import Heard

import tfdistr
from tfdistr.errors import TfdistrError

sys.path.append(str(Path(__file__).parents[3] / "equality"))
from cases_of_rows import CASES

X = np.random.default_rng(0).normal(size=(24, 4)).astype("float32")
Y = (X.sum(1) > 0).astype("int32")


def compiled(model: keras.Model, **arguments: Any) -> keras.Model:
    model.compile(
        keras.optimizers.SGD(0.1), keras.losses.SparseCategoricalCrossentropy(from_logits=True), **arguments
    )
    return model


def stack(*parts: keras.layers.Layer, **arguments: Any) -> Callable[[], keras.Model]:
    return lambda: compiled(keras.Sequential([keras.Input((4,)), *parts, keras.layers.Dense(2)]), **arguments)


class TensorFlowNoise(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs + tf.random.normal(tf.shape(inputs))


class Counter(keras.layers.Layer):
    """Changes a variable that Keras does not know."""

    def build(self, shape: Any) -> None:
        self.count = tf.Variable(0.0, trainable=False)

    def call(self, inputs: Any) -> Any:
        self.count.assign_add(1.0)
        return inputs


class Clipped(keras.layers.Dense):
    """Changes its own weights while it computes."""

    def call(self, inputs: Any) -> Any:
        self.kernel.assign(keras.ops.clip(self.kernel, -1, 1))
        return super().call(inputs)


class TwoUpdates(keras.Model):
    def train_step(self, data: Any) -> Any:
        weights = self.trainable_weights
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(data[0]) ** 2)
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return {"loss": loss}


class ReadsAfter(keras.Model):
    def train_step(self, data: Any) -> Any:
        super().train_step(data)
        return {"norm": tf.norm(self.trainable_weights[0].value)}


class ReadsInBranch(keras.Model):
    def train_step(self, data: Any) -> Any:
        logs = super().train_step(data)
        weight = self.trainable_weights[0]
        return {**logs, "norm": tf.cond(tf.size(data[0]) > 0, lambda: tf.norm(weight.value), lambda: 0.0)}


class AppliesInBranch(keras.Model):
    def train_step(self, data: Any) -> Any:
        weights = self.trainable_weights
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(data[0]) ** 2)
        gradients = tape.gradient(loss, weights)
        tf.cond(loss > 0, lambda: self.optimizer.apply(gradients, weights), lambda: None)
        return {"loss": loss}


class NewOptimizer(keras.Model):
    """Applies an optimizer that it makes anew in each trace."""

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(data[0]) ** 2)
        keras.optimizers.SGD(0.1).apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss}


class SparseTwice(keras.Model):
    """Changes an embedding, reads it, and changes it again."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = keras.layers.Embedding(9, 3), keras.layers.Dense(2)
        self.second = keras.optimizers.SGD(0.2)

    def call(self, inputs: Any) -> Any:
        return self.head(keras.ops.mean(self.embedding(keras.ops.cast(inputs > 0, "int32")), axis=1))

    def train_step(self, data: Any) -> Any:
        for optimizer in (self.optimizer, self.second):
            with tf.GradientTape() as tape:
                loss = self.compute_loss(data[0], data[1], self(data[0], training=True))
            optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"again": loss}


class Largest(keras.metrics.Metric):
    """No sum over rows."""

    def __init__(self) -> None:
        super().__init__(name="largest")
        self.value = self.add_variable((), "zeros", name="value")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.value.assign(keras.ops.maximum(self.value, keras.ops.max(y_pred)))

    def result(self) -> Any:
        return self.value


class KeepsLargest(keras.Model):
    """Gives its metric one number for a batch, and not its rows."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.largest = Largest()

    def train_step(self, data: Any) -> dict[str, Any]:
        self.largest.update_state(None, keras.ops.max(data[0]))
        return super().train_step(data)


def own_class(kind: type[keras.Model], **arguments: Any) -> Callable[[], keras.Model]:
    def make() -> keras.Model:
        inputs = keras.Input((4,))
        return compiled(kind(inputs, keras.layers.Dense(2)(inputs)), **arguments)

    return make


def fit(model: Callable[[], keras.Model], count: int = 4, **arguments: Any) -> Any:
    return tfdistr.distributed_fit(
        model, X, Y, **{"batch_size": 8, "seed": 1, "verbose": 0, "virtual_workers": count, **arguments}
    )


def exchanging() -> keras.Model:
    return stack(keras.layers.BatchNormalization(synchronized=True), run_eagerly=True)()


def stateful() -> keras.Model:
    parts = [keras.layers.Reshape((4, 1)), keras.layers.GRU(3, stateful=True), keras.layers.Dense(2)]
    return compiled(keras.Sequential([keras.Input(batch_shape=(8, 4)), *parts]))


def own_loop() -> None:
    strategy = tfdistr.MultiWorkerMirroredStrategy(virtual_workers=2)
    strategy.run(lambda: tf.constant(1.0))


REFUSED: dict[str, Callable[[], Any]] = {
    "fewer than workers": lambda: fit(stack(), 1, cluster=tfdistr.local_cluster(2)),
    "more than examples": lambda: fit(stack(), 9),
    "NCCL": lambda: fit(stack(), strategy=tfdistr.multi_worker_mirrored(communication="nccl")),
    "NCCL by the strategy": lambda: tfdistr.MultiWorkerMirroredStrategy(
        communication="nccl", virtual_workers=2
    ),
    "not a number": lambda: fit(stack(), "many"),
    "one device": lambda: fit(stack(), strategy="one_device"),
    "parameter servers": lambda: fit(
        stack(), strategy="parameter_server", cluster=tfdistr.local_cluster(1, ps=1)
    ),
    "model parallelism": lambda: fit(stack(), strategy=tfdistr.model_parallel(placement=lambda *_: "cpu:0")),
    "random numbers of TensorFlow": lambda: fit(stack(TensorFlowNoise())),
    "variables of TensorFlow": lambda: fit(stack(Counter())),
    "weights changed by a layer": lambda: fit(stack(Clipped(4))),
    "an optimizer made in a step": lambda: fit(own_class(NewOptimizer)),
    "weights read after the update, in eager mode": lambda: fit(own_class(ReadsAfter, run_eagerly=True)),
    "weights read after the update, in a branch": lambda: fit(own_class(ReadsInBranch)),
    "an update in a branch": lambda: fit(own_class(AppliesInBranch)),
    "states of a recurrent layer": lambda: fit(stateful),
    "a metric that does not add": lambda: fit(own_class(KeepsLargest)),
    "an exchange in eager mode": lambda: fit(exchanging),
    "a loop of one's own": own_loop,
}


#: Cases of tests/equality that are trained here; with the slow tests, so are all of the first one's module.
QUICK = ("gan", "clipped_by_the_step", "clipped_rows_of_an_embedding", "private_gradients",
         "gradients_of_an_own_function", "vector_loss_over_synchronized_norm")  # fmt: skip

#: Steps that change weights, or use gradients, in their own way.
STEPS: dict[str, Callable[[], keras.Model]] = {
    "two updates": own_class(TwoUpdates),
    "weights read after the update": own_class(ReadsAfter),
    "sparse updates": lambda: compiled(SparseTwice()),
    **{
        name: case.model for name, case in CASES.items()
        if name in QUICK or (case.model.__module__ == "cases_of_steps" and os.environ.get("SLOW"))
    },
}  # fmt: skip


def distance_to_none(name: str) -> float:
    """The largest difference between training with virtual workers and without them."""
    data = CASES[name].data if name in CASES else (X, Y)
    fits = [
        tfdistr.distributed_fit(
            STEPS[name], *data, batch_size=12, epochs=2, seed=1, verbose=0, virtual_workers=count
        )
        for count in (4, None)
    ]
    both = [[*fit.model.get_weights(), *(fit.history[key] for key in sorted(fit.history))] for fit in fits]
    return max(float(np.abs(np.subtract(a, b)).max()) for a, b in zip(*both, strict=True))


def compared_machines() -> list[str]:
    """What is logged if worker 1 computes other bits."""
    from tfdistr.strategies.virtual.rounding import compare_machines

    class Peers:
        def exchange(self, text: str) -> list[str]:
            return [text, "0123 an older processor", text]

    heard = Heard()
    compare_machines(Peers())  # type: ignore[arg-type]
    return heard.take()


def with_two_threads() -> str:
    tf.config.threading.set_intra_op_parallelism_threads(2)
    tf.constant(1.0) + 1.0
    try:
        fit(stack())
    except TfdistrError as error:
        return str(error)
    return ""


def main(file: Path) -> None:
    told: dict[str, Any] = {}
    for name, action in REFUSED.items():
        try:
            action()
            told[name] = None
        except TfdistrError as error:
            told[name] = f"{type(error).__name__}: {error}"
    eager = fit(stack(keras.layers.Dropout(0.5), run_eagerly=True))
    told["eager"] = bool(
        np.array_equal(
            eager.model.get_weights()[0],
            fit(stack(keras.layers.Dropout(0.5), run_eagerly=True)).model.get_weights()[0],
        )
    )
    told["machines"] = compared_machines()
    told["steps"] = {name: distance_to_none(name) for name in STEPS}
    file.write_text(json.dumps(told))


if __name__ == "__main__":
    if sys.argv[2:]:
        Path(sys.argv[1]).write_text(json.dumps({"threads": with_two_threads()}))
    else:
        main(Path(sys.argv[1]))
