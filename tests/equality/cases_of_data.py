"""Cases: metrics, inputs, numbers of examples and steps, callbacks that decide."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from case import BATCH, BINARY, WEIGHTED, X, Y, case, examples
from models import (
    binary,
    callbacks,
    compiled,
    dense,
    layers,
    metrics,
    optimizers,
    stack,
)

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


@case(steps_per_epoch=2)  # the second epoch continues where the first one ended
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
