"""What is trained on one, two and three workers to compare the results: one small function per case.

A case is the function that a user would write: it builds and compiles a Keras 3 model. Its decorator
holds what the model is trained on, where that is not `EXAMPLES`, and the arguments of `fit`:

    @case(data=examples(97), class_weight={0: 1.0, 1: 3.0})
    def my_case():
        return dense(optimizers.Adam(0.01))

    make equality T=my_case

Data is a tuple of arrays (x, y[, sample_weight]), or a function that makes an ordinary `tf.data`
pipeline of global batches. `fit` under the strategy gets arrays as a pipeline that shuffles (`arrays=True`:
as they are), `distributed_fit()` as they are; `evaluate` gets a pipeline and `predict` arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from case import BATCH, BINARY, SENTENCES, TOKENS, WEIGHTED, X, Y, case, examples
from case import CASES as CASES  # filled once this module is imported

# --- What most models have in common --------------------------------------------------------------

IN_A_CONDITION = "TensorFlow's replicas in one process cannot meet in a condition or a loop"

callbacks, layers, losses, metrics, optimizers = (
    keras.callbacks, keras.layers, keras.losses, keras.metrics, keras.optimizers)  # fmt: skip


def compiled(model: keras.Model, optimizer: Any = None, loss: Any = None, **arguments: Any) -> keras.Model:
    arguments = {"metrics": ["accuracy"]} | arguments
    loss = loss or losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer or optimizers.SGD(0.1, momentum=0.9), loss, **arguments)
    return model


def stack(*parts: layers.Layer) -> keras.Model:
    return keras.Sequential([keras.Input((8,)), *parts])


def dense(optimizer: Any = None, loss: Any = None, **arguments: Any) -> keras.Model:
    return compiled(stack(layers.Dense(16, "relu"), layers.Dense(2)), optimizer, loss, **arguments)


def binary(*measures: metrics.Metric) -> keras.Model:
    model = stack(layers.Dense(16, "relu"), layers.Dense(1, "sigmoid"))
    return compiled(model, loss="binary_crossentropy", metrics=list(measures))


def with_layers(*parts: layers.Layer) -> keras.Model:
    return compiled(stack(layers.Dense(16, "relu"), *parts, layers.Dense(2)))


def sentences(*parts: layers.Layer, mask_zero: bool = False) -> keras.Model:
    embedding = layers.Embedding(20, 4, mask_zero=mask_zero)
    return compiled(keras.Sequential([keras.Input((6,), dtype="int32"), embedding, *parts]))


# --- Kinds of models ------------------------------------------------------------------------------


@case
def sequential():
    return dense()


@case
def functional():
    inputs = keras.Input((8,))
    hidden = layers.Dense(16, "relu")(inputs)
    joined = layers.Concatenate()([hidden, layers.Dense(4, "tanh")(inputs)])
    return compiled(keras.Model(inputs, layers.Dense(2)(joined)))


class TwoLayers(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = layers.Dense(16, "relu"), layers.Dense(2)

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs))


@case
def subclassed():
    return compiled(TwoLayers())


@case
def unbuilt():
    return compiled(keras.Sequential([layers.Dense(16, "relu"), layers.Dense(2)]))


def step_of_ones_own(model: keras.Model, data: Any) -> dict[str, Any]:
    x, y = data
    with tf.GradientTape() as tape:
        predicted = model(x, training=True)
        loss = model.compute_loss(x, y, predicted)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    model.optimizer.apply_gradients(zip(gradients, variables, strict=True))
    return model.compute_metrics(x, y, predicted)


class OwnStep(TwoLayers):
    def train_step(self, data: Any) -> dict[str, Any]:
        return step_of_ones_own(self, data)


@case
def custom_train_step():
    return compiled(OwnStep())


class CompiledStep(TwoLayers):
    @tf.function
    def train_step(self, data: Any) -> dict[str, Any]:
        return step_of_ones_own(self, data)


@case
def compiled_train_step():
    return compiled(CompiledStep())


@case
def run_eagerly():
    return dense(run_eagerly=True)


@case
def jit_compile():
    return dense(jit_compile=True)


@case(not_mirrored=IN_A_CONDITION)
def steps_per_execution_2():
    return dense(steps_per_execution=2)


@case(data=examples(97), not_mirrored=IN_A_CONDITION)
def steps_per_execution_10():
    return dense(steps_per_execution=10)


# --- Layers ---------------------------------------------------------------------------------------


@case(data=SENTENCES)
def lstm():
    return sentences(layers.LSTM(6), layers.Dense(2))


@case(data=SENTENCES)
def gru():
    return sentences(layers.GRU(6), layers.Dense(2))


@case(data=SENTENCES)
def embedding():  # its gradients are sparse
    return sentences(layers.Flatten(), layers.Dense(2))


@case(data=SENTENCES)
def masked_sentences():
    return sentences(layers.LSTM(6), layers.Dense(2), mask_zero=True)


@case(data=(TOKENS[:101], TOKENS[:101] % 3))
def masked_tokens():  # the loss is a mean over the words, of which each worker has another number
    return sentences(layers.Dense(3), mask_zero=True)


@case
def convolution_1d():
    parts = layers.Reshape((8, 1)), layers.Conv1D(4, 3, activation="relu"), layers.Flatten()
    return compiled(stack(*parts, layers.Dense(2)))


@case
def convolution_2d():
    parts = layers.Conv2D(4, 2, padding="same", activation="relu"), layers.MaxPooling2D((2, 1))
    return compiled(stack(layers.Reshape((4, 2, 1)), *parts, layers.Flatten(), layers.Dense(2)))


@case(data=examples(97))
def synchronized_batch_normalization():
    return with_layers(layers.BatchNormalization(synchronized=True))


@case
def layer_normalization():
    return with_layers(layers.LayerNormalization())


# --- Losses ---------------------------------------------------------------------------------------


@case
def regularizers():
    hidden = layers.Dense(4, kernel_regularizer="l2", bias_regularizer="l1", activity_regularizer="l1")
    return with_layers(hidden)


class SmallValues(layers.Layer):
    def call(self, inputs: Any) -> Any:
        self.add_loss(0.1 * keras.ops.mean(keras.ops.square(inputs)))
        return inputs


@case
def add_loss():
    return with_layers(SmallValues())


@case
def loss_sum():
    return dense(optimizers.SGD(0.001), losses.SparseCategoricalCrossentropy(True, reduction="sum"))


@case(data=WEIGHTED)
def loss_sum_sample_weight():
    return dense(optimizers.SGD(0.001), losses.SparseCategoricalCrossentropy(True, reduction="sum"))


@case(data=WEIGHTED)
def loss_mean_with_sample_weight():
    return dense(loss=losses.SparseCategoricalCrossentropy(True, reduction="mean_with_sample_weight"))


@case(data=(X[:101], {"kind": Y[:101], "value": X[:101, :1] * X[:101, 1:2]}))
def two_outputs_loss_weights():
    inputs = keras.Input((8,))
    hidden = layers.Dense(16, "relu")(inputs)
    outputs = {"kind": layers.Dense(2, name="kind")(hidden), "value": layers.Dense(1, name="value")(hidden)}
    return compiled(
        keras.Model(inputs, outputs),
        loss={"kind": losses.SparseCategoricalCrossentropy(from_logits=True), "value": "mse"},
        loss_weights={"kind": 0.3, "value": 2.0},
        metrics={"kind": "accuracy", "value": "mae"},
    )


# --- Optimizers -----------------------------------------------------------------------------------


@case
def sgd():
    return dense(optimizers.SGD(0.1))


@case
def adam():
    return dense(optimizers.Adam(0.01))


@case
def adamw():
    return dense(optimizers.AdamW(0.01, weight_decay=0.1))


@case
def lion():
    # It uses the sign of a momentum. None is so close to 0 here that rounding decides on it; the units of the
    # first layer that do nothing have exactly 0.
    return dense(optimizers.Lion(0.01))


@case
def learning_rate_schedule():
    return dense(optimizers.SGD(optimizers.schedules.ExponentialDecay(0.2, decay_steps=2, decay_rate=0.5)))


@case
def clipnorm():
    return dense(optimizers.SGD(0.1, clipnorm=0.05))


@case
def clipvalue():
    return dense(optimizers.SGD(0.1, clipvalue=0.001))


@case
def global_clipnorm():
    return dense(optimizers.Adam(0.01, global_clipnorm=0.01))


@case(not_mirrored=IN_A_CONDITION)
def moving_average():
    return dense(optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5, ema_overwrite_frequency=3))


@case(not_mirrored=IN_A_CONDITION)
def gradient_accumulation():
    return dense(optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=3))


@case
def loss_scale():
    return dense(optimizers.LossScaleOptimizer(optimizers.SGD(0.1)))


def mixed(policy: str, learning_rate: float = 0.1) -> keras.Model:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = stack(layers.Dense(16, "relu"), layers.Dense(2, dtype="float32"))
        # No accuracy: one worker that reads the rows of each batch in another order gives logits that differ
        # by 1e-3, and examples whose two logits are as close as that count now as right and now as wrong.
        measure = metrics.SparseCategoricalCrossentropy(from_logits=True)
        return compiled(model, optimizers.SGD(learning_rate, momentum=0.9), metrics=[measure])
    finally:
        keras.config.set_dtype_policy(before)


@case(bound=1e-3)  # 16 bits
def mixed_float16():
    return mixed("mixed_float16")


# It has 8 significant bits: a weight that differs in the sixth decimal may be rounded the other way.
@case(bound=1e-3, predict_bound=2**-8)
def mixed_bfloat16():
    return mixed("mixed_bfloat16", 0.01)


# --- Metrics --------------------------------------------------------------------------------------


@case(validation=examples(50))
def top_k():
    top = metrics.SparseTopKCategoricalAccuracy(k=2)
    return compiled(stack(layers.Dense(16, "relu"), layers.Dense(5)), metrics=["accuracy", top])


@case(data=BINARY)
def auc():
    return binary(metrics.AUC(), metrics.AUC(curve="PR", name="pr"))


@case(data=BINARY)
def precision_recall():
    return binary(metrics.Precision(), metrics.Recall())


@case
def mean_iou():
    return dense(metrics=[metrics.MeanIoU(num_classes=2, sparse_y_pred=False)])


@case(data=BINARY)
def f1_score():
    return binary(metrics.F1Score(threshold=0.5))


def largest_error(y: Any, predicted: Any) -> Any:
    return keras.ops.max(keras.ops.abs(y - predicted), axis=-1)


@case(data=BINARY)
def mean_of_a_function():
    return binary(largest_error, metrics.MeanMetricWrapper(largest_error, name="wrapped"))


class ShareOfOnes(metrics.Metric):
    """Keeps two numbers of its own."""

    def __init__(self) -> None:
        super().__init__(name="share_of_ones")
        self.ones = self.add_weight(name="ones", initializer="zeros")
        self.all = self.add_weight(name="all", initializer="zeros")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        chosen = keras.ops.cast(keras.ops.argmax(y_pred, axis=-1), "float32")
        self.ones.assign_add(keras.ops.sum(chosen))
        self.all.assign_add(keras.ops.cast(keras.ops.size(chosen), "float32"))

    def result(self) -> Any:
        return self.ones / self.all


@case
def stateful_metric():
    return dense(metrics=[ShareOfOnes()])


@case(data=WEIGHTED)
def weighted_metrics():
    return dense(weighted_metrics=["accuracy", metrics.SparseCategoricalCrossentropy(from_logits=True)])


# --- Inputs ---------------------------------------------------------------------------------------


def joined(inputs: Any, *parts: Any) -> keras.Model:
    return compiled(keras.Model(inputs, layers.Dense(2)(layers.Concatenate()(list(parts)))))


@case(data=({"left": X[:101, :3], "right": X[:101, 3:]}, Y[:101]))
def dict_input():
    inputs = {"left": keras.Input((3,), name="left"), "right": keras.Input((5,), name="right")}
    return joined(inputs, layers.Dense(4)(inputs["left"]), inputs["right"])


@case(data=((X[:101, :3], X[:101, 3:]), Y[:101]))
def tuple_input():
    inputs = keras.Input((3,)), keras.Input((5,))
    return joined(inputs, layers.Dense(4)(inputs[0]), inputs[1])


WORDS = np.array([[f"{a} {b}"] for a, b in (np.abs(X[:101, :2]) * 2).astype(int)])


TEXTS = ({"words": WORDS, "x": X[:101]}, Y[:101])


# Keras's predict takes text in a pipeline only.
@case(data=TEXTS, held_out=lambda: tf.data.Dataset.from_tensor_slices(TEXTS).batch(BATCH))
def text_and_numbers():
    vectorize = layers.TextVectorization(vocabulary=["0", "1", "2", "3"], output_sequence_length=4)
    inputs = {"words": keras.Input((1,), dtype="string", name="words"), "x": keras.Input((8,), name="x")}
    return joined(inputs, layers.Flatten()(layers.Embedding(6, 3)(vectorize(inputs["words"]))), inputs["x"])


class SumOfRow(keras.Model):
    """Takes rows of unequal length."""

    def __init__(self) -> None:
        super().__init__()
        self.body = layers.Dense(2)

    def call(self, inputs: tf.RaggedTensor) -> tf.Tensor:
        return self.body(tf.reduce_sum(inputs, axis=1, keepdims=True))


def ragged_rows() -> tf.data.Dataset:
    lengths = [row % 14 + 1 for row in range(65)]
    rows = tf.RaggedTensor.from_row_lengths(X.ravel()[: sum(lengths)], lengths)
    return tf.data.Dataset.from_tensor_slices((rows, Y[:65])).batch(16)


@case(data=ragged_rows)
def ragged():
    return compiled(SumOfRow())


def sparse_rows() -> tf.data.Dataset:
    rows = tf.sparse.from_dense(np.where(X > 0.5, X, 0)[:97])
    return tf.data.Dataset.from_tensor_slices((rows, Y[:97])).batch(BATCH)


@case(data=sparse_rows, not_mirrored="TensorFlow cannot split sparse tensors over devices")
def sparse():
    return compiled(keras.Sequential([keras.Input((8,), sparse=True), layers.Dense(2)]))


@case(arrays=True)
def arrays():
    return dense()


@case(data=WEIGHTED, validation=WEIGHTED)
def sample_weight():
    return dense()


@case(class_weight={0: 1.0, 1: 3.0})
def class_weight():
    return dense()


@case(validation=examples(33))
def validation_data():
    return dense()


@case(arrays=True, validation_split=0.3, drop_in_only="distributed_fit() has no validation_split")
def validation_split():
    return dense()


# --- How many examples and steps ------------------------------------------------------------------


def pipeline(count: int, **batch_arguments: Any) -> tf.data.Dataset:
    examples = tf.data.Dataset.from_tensor_slices((X[:count], Y[:count]))
    return examples.shuffle(200).batch(BATCH, **batch_arguments)


@case(data=examples(128))
def even():
    return dense()


@case(data=examples(97), held_out=examples(33))
def last_batch_smaller_than_workers():
    return dense()


@case(data=examples(2))
def fewer_examples_than_workers():
    return dense()


@case(data=examples(1))
def one_example():
    return compiled(stack(layers.Reshape((8, 1)), layers.Conv1D(4, 3), layers.Flatten(), layers.Dense(2)))


# Evaluated as they come: under a strategy, Keras reads a batch before it begins, so that a pipeline that is
# shuffled anew each time it is read is one order further there than without a strategy.
@case(data=lambda: pipeline(101, drop_remainder=True), held_out=examples(50))
def drop_remainder():
    return dense()


@case(data=lambda: pipeline(101).repeat(), held_out=examples(50), steps_per_epoch=5)
def steps_per_epoch_repeat():
    return dense()


@case(data=lambda: pipeline(40).repeat(), held_out=examples(50), steps_per_epoch=5)
def steps_per_epoch_repeat_short():
    return dense()


@case(steps_per_epoch=2)  # the second epoch goes on where the first one ended
def steps_per_epoch():
    return dense()


@case(steps_per_epoch=3)  # Keras warns that the data ends in the second epoch
def steps_per_epoch_too_many():
    return dense()


# --- Callbacks that decide ------------------------------------------------------------------------

# A change of less than 10 is none, so that each of them sees no progress.


@case(
    validation=examples(33),
    epochs=5,
    callbacks=lambda: [callbacks.EarlyStopping(min_delta=10, patience=2)],
)
def early_stopping():
    return dense()


@case(
    validation=examples(33),
    epochs=5,
    callbacks=lambda: [callbacks.EarlyStopping(min_delta=10, patience=2, restore_best_weights=True)],
)
def early_stopping_restores():
    return dense()


@case(epochs=4, callbacks=lambda: [callbacks.ReduceLROnPlateau("loss", factor=0.5, min_delta=10, patience=1)])
def reduce_learning_rate():
    return dense()


@case(epochs=3, callbacks=lambda: [callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5**epoch)])
def learning_rate_scheduler():
    return dense()


BROKEN = X[:101].copy()
BROKEN[70, 0] = np.nan


@case(data=(BROKEN, Y[:101]), held_out=examples(50), callbacks=lambda: [callbacks.TerminateOnNaN()])
def terminate_on_nan():
    # One example makes one worker's loss NaN. The optimizer leaves such a step out, so that the weights
    # tell how many steps there were.
    return dense(optimizers.LossScaleOptimizer(optimizers.SGD(0.1)))


# --- Not equal on purpose: that the runner tells -----------------------------------------------


@case(on_purpose=True)
def unsynchronized_batch_normalization():
    return with_layers(layers.BatchNormalization())


class OnLastWorker(callbacks.Callback):
    """Does something in one step of the last of several workers."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self.action = action

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        strategy = self.model.distribute_strategy
        workers = getattr(strategy, "num_workers", 1)
        if batch == 1 and workers > 1 and strategy.worker_index == workers - 1:
            self.action()


def fail() -> None:
    raise ValueError("this worker fails on purpose")


@case(on_purpose=True, callbacks=lambda: [OnLastWorker(fail)])
def fails_on_one_worker():
    return dense()


@case(on_purpose=True, limit=10, callbacks=lambda: [OnLastWorker(threading.Event().wait)])
def hangs_on_one_worker():
    return dense()
