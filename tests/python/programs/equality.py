"""Trains small models under the drop-in strategy, one case after the other, as one worker of a cluster.

Usage: equality.py FOLDER CASE...   (writes FOLDER/CASE.npz: weights, history, evaluate, predict)
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np

import tfdistr

strategy = tfdistr.MultiWorkerMirroredStrategy()

import keras  # noqa: E402
import tensorflow as tf  # noqa: E402

BATCH = 64
rng = np.random.default_rng(0)
X = rng.normal(size=(513, 8)).astype("float32")
Y = (X[:, :4].sum(1) > 0).astype("int32")


def batches(examples: int, *extra: np.ndarray) -> tf.data.Dataset:
    arrays = (X, Y, *extra)
    return (
        tf.data.Dataset.from_tensor_slices(tuple(a[:examples] for a in arrays))
        .shuffle(1000)  # unseeded: the strategy gives all workers one seed
        .batch(BATCH)
    )


def dense(*layers: keras.layers.Layer, optimizer: object = None, **compile_args: object) -> keras.Model:
    first, last = keras.layers.Dense(16, "relu"), keras.layers.Dense(2)
    return compiled(keras.Sequential([keras.Input((8,)), first, *layers, last]), optimizer, **compile_args)


def compiled(model: keras.Model, optimizer: object = None, **compile_args: object) -> keras.Model:
    model.compile(
        optimizer or keras.optimizers.SGD(0.1, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        **compile_args,
    )
    return model


class OwnStep(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.body = keras.layers.Dense(2)

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        return self.body(inputs)

    def train_step(self, data: tuple) -> dict:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return self.compute_metrics(x, y, predicted)


def embedding() -> keras.Model:
    words = keras.Sequential([
        keras.Input((8,)),
        keras.layers.Lambda(lambda x: tf.cast(tf.abs(x) * 3, tf.int32)),
        keras.layers.Embedding(20, 4),
        keras.layers.LSTM(6),
        keras.layers.Dense(2),
    ])  # fmt: skip
    return compiled(words)


def text() -> keras.Model:
    vectorize = keras.layers.TextVectorization(vocabulary=["0", "1", "2", "3"], output_sequence_length=4)
    inputs = {"words": keras.Input((1,), dtype="string", name="words"), "x": keras.Input((8,), name="x")}
    embedded = keras.layers.Flatten()(keras.layers.Embedding(6, 3)(vectorize(inputs["words"])))
    joined = keras.layers.Concatenate()([embedded, inputs["x"]])
    return compiled(keras.Model(inputs, keras.layers.Dense(2)(joined)))


def text_data() -> tf.data.Dataset:
    words = np.array([[f"{a} {b}"] for a, b in (np.abs(X[:, :2]) * 2).astype(int)])
    return tf.data.Dataset.from_tensor_slices(({"words": words, "x": X}, Y)).batch(BATCH)


def convolution() -> keras.Model:
    return compiled(keras.Sequential([
        keras.Input((8,)), keras.layers.Reshape((8, 1)), keras.layers.Conv1D(4, 3, activation="relu"),
        keras.layers.Flatten(), keras.layers.Dense(2),
    ]))  # fmt: skip


class SumOfRow(keras.Model):
    """Takes rows of unequal length."""

    def __init__(self) -> None:
        super().__init__()
        self.body = keras.layers.Dense(2)

    def call(self, inputs: tf.RaggedTensor) -> tf.Tensor:
        return self.body(tf.reduce_sum(inputs, axis=1, keepdims=True))


def ragged_data() -> tf.data.Dataset:
    lengths = [row % 14 + 1 for row in range(65)]
    rows = tf.RaggedTensor.from_row_lengths(X.ravel()[: sum(lengths)], lengths)
    return tf.data.Dataset.from_tensor_slices((rows, Y[:65])).batch(16)


def sparse() -> keras.Model:
    return compiled(keras.Sequential([keras.Input((8,), sparse=True), keras.layers.Dense(2)]))


def sparse_data() -> tf.data.Dataset:
    rows = tf.sparse.from_dense(np.where(X > 0.5, X, 0)[:257])
    return tf.data.Dataset.from_tensor_slices((rows, Y[:257])).batch(BATCH)


optimizers = keras.optimizers
# name: (model function, fit arguments function)
CASES = {
    "plain": (dense, lambda: {"x": batches(512)}),
    "uneven_last_batch": (dense, lambda: {"x": batches(501)}),
    "last_batch_of_one": (dense, lambda: {"x": batches(513)}),
    "fewer_examples_than_workers": (convolution, lambda: {"x": batches(1)}),
    "convolution": (convolution, lambda: {"x": batches(513)}),
    "validation": (dense, lambda: {"x": batches(501), "validation_data": batches(100)}),
    "sample_weight": (dense, lambda: {"x": batches(501, rng.uniform(size=513).astype("float32"))}),
    "class_weight": (dense, lambda: {"x": batches(501), "class_weight": {0: 1.0, 1: 3.0}}),
    "steps_per_epoch": (dense, lambda: {"x": batches(501).repeat(), "steps_per_epoch": 5}),
    "arrays": (dense, lambda: {"x": X, "y": Y, "batch_size": BATCH}),
    "adam_global_clipnorm": (
        lambda: dense(optimizer=optimizers.Adam(0.01, global_clipnorm=0.01)),
        lambda: {"x": batches(501)}),
    "clipvalue": (lambda: dense(optimizer=optimizers.SGD(0.1, clipvalue=0.001)), lambda: {"x": batches(501)}),
    "gradient_accumulation": (
        lambda: dense(optimizer=optimizers.SGD(0.1, gradient_accumulation_steps=3)),
        lambda: {"x": batches(501)}),
    "moving_average": (
        lambda: dense(optimizer=optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)),
        lambda: {"x": batches(501)}),
    "loss_scale": (
        lambda: dense(optimizer=optimizers.LossScaleOptimizer(optimizers.SGD(0.1))),
        lambda: {"x": batches(501)}),
    "synchronized_batch_norm": (
        lambda: dense(keras.layers.BatchNormalization(synchronized=True)), lambda: {"x": batches(513)}),
    "regularizers": (
        lambda: dense(keras.layers.Dense(4, kernel_regularizer="l2", activity_regularizer="l1")),
        lambda: {"x": batches(512)}),
    "own_train_step": (lambda: compiled(OwnStep()), lambda: {"x": batches(501)}),
    "sparse_gradients": (embedding, lambda: {"x": batches(501)}),
    "text_and_numbers": (text, lambda: {"x": text_data()}),
    "ragged": (lambda: compiled(SumOfRow()), lambda: {"x": ragged_data()}),
    "sparse": (sparse, lambda: {"x": sparse_data()}),
    "steps_per_execution": (lambda: dense(steps_per_execution=4), lambda: {"x": batches(501)}),
    "run_eagerly": (lambda: dense(run_eagerly=True), lambda: {"x": batches(160)}),
}  # fmt: skip
# Data for evaluate and predict, where it is not the usual.
OTHER_DATA = {"text_and_numbers": text_data, "ragged": ragged_data, "sparse": sparse_data}


def run(name: str, folder: str) -> None:
    keras.utils.set_random_seed(7)
    make_model, make_fit = CASES[name]
    with strategy.scope():
        model = make_model()
    fit = make_fit()
    history = model.fit(**fit, epochs=2, verbose=0).history
    data = OTHER_DATA.get(name, lambda: batches(100))()
    held_out = data.map(lambda x, y: x).take(2) if name in OTHER_DATA else X[:100]
    values = {f"weight_{i}": w for i, w in enumerate(model.get_weights())}
    values |= {f"history_{k}": np.asarray(v) for k, v in history.items()}
    values["evaluate"] = np.asarray(model.evaluate(data, verbose=0))
    size = BATCH if isinstance(held_out, np.ndarray) else None
    values["predict"] = model.predict(held_out, verbose=0, batch_size=size)
    np.savez(os.path.join(folder, name + ".npz"), **values)


if __name__ == "__main__":
    for case in sys.argv[2:]:
        run(case, sys.argv[1])
    print("ran", len(sys.argv) - 2, "cases as worker", strategy.worker_index, "of", strategy.num_workers)
