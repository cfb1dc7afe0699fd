"""What rows name, in Python: models, data, functions, callbacks. In R: models.R. Workers import it."""

import os
import signal
import time
from typing import Any

import numpy as np

import tfdistr

_DIGITS = tfdistr.load_dataset("digits").arrays()
images = _DIGITS[0][:320] / np.float32(16)
labels = _DIGITS[1][:320].astype("int64")
few_images, few_labels = images[:64], labels[:64]
weights = np.arange(320, dtype="float64") % 5 + 1
columns = {"left": images[:, :, :4], "right": images[:, :, 4:]}


def network(*layers: Any) -> Any:
    import keras

    model = keras.Sequential([keras.layers.Flatten(), *layers, keras.layers.Dense(10, "softmax")])
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def dense() -> Any:
    import keras

    return network(keras.layers.Dense(16, "relu", name="first"))


def by_sgd() -> Any:
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [layers.Flatten(), layers.Dense(16, "relu", name="first"), layers.Dense(10, "softmax")]
    )
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def convolution() -> Any:
    import keras

    layers = keras.layers
    model = keras.Sequential(
        [layers.Conv2D(4, 3, activation="relu"), layers.Flatten(), layers.Dense(10, "softmax")]
    )
    model.compile(keras.optimizers.SGD(0.1), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def random() -> Any:
    import keras

    return network(
        keras.layers.Dense(16, "relu"), keras.layers.BatchNormalization(), keras.layers.Dropout(0.2)
    )


def own_loss() -> Any:
    import keras

    def loss(y_true: Any, y_pred: Any) -> Any:
        return 2.0 * keras.losses.sparse_categorical_crossentropy(y_true, y_pred)

    model = network(keras.layers.Dense(16, "relu"))
    model.compile(keras.optimizers.Adam(0.01), loss)
    return model


def two_inputs() -> Any:
    import keras

    left, right = keras.Input((8, 4, 1), name="left"), keras.Input((8, 4, 1), name="right")
    both = keras.layers.Concatenate()([keras.layers.Flatten()(left), keras.layers.Flatten()(right)])
    model = keras.Model({"left": left, "right": right}, keras.layers.Dense(10, "softmax")(both))
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def linear() -> Any:
    import keras

    model = keras.Sequential([keras.layers.Dense(1, name="only")])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    return model


def linear_of_images() -> Any:
    return network()


def stops() -> Any:
    raise ValueError("there is no model here: 50% {x}")


def data_stops() -> Any:
    raise ValueError("there are no data here: 50% {x}")


def callback_stops() -> Any:
    import keras

    index = tfdistr.worker_index()

    def stops(epoch: int, logs: Any) -> None:
        if index == 1:
            raise ValueError("this epoch is bad: 50% {x}")

    return [keras.callbacks.LambdaCallback(on_epoch_end=stops)]


def pipeline() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices((images, labels)).map(lambda x, y: (x * 2.0, y))


def sharded(ctx: Any) -> Any:
    import tensorflow as tf

    return ctx.shard(tf.data.Dataset.from_tensor_slices((images, labels))).map(lambda x, y: (x * 2.0, y))


def generator() -> Any:
    for first in range(0, 320, 32):
        yield images[first : first + 32], labels[first : first + 32]


def callbacks() -> Any:
    import keras

    return [
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2),
        keras.callbacks.EarlyStopping(monitor="loss", min_delta=100.0, patience=1),
    ]


def kills_itself() -> Any:
    """Ends the process of the last worker, or of the only one, after step 17: within the second epoch."""
    return [_after_17_steps(lambda: tfdistr.worker_index() == tfdistr.num_workers() - 1 and os.getpid())]


def _after_17_steps(whom: Any) -> Any:
    import keras

    steps = iter(range(17, 0, -1))

    def after(batch: int, logs: Any) -> None:
        if next(steps, 0) == 1 and (process := whom()):
            os.kill(process, signal.SIGKILL)
            time.sleep(60)  # a worker ends with its session, before another step

    return keras.callbacks.LambdaCallback(on_train_batch_end=after)


def dataset() -> Any:
    import tensorflow as tf

    return tf.data.Dataset.from_tensor_slices(np.arange(8, dtype="float32"))


def csv_logger() -> Any:
    import keras

    return keras.callbacks.CSVLogger("never-written.csv")


def ring_options() -> Any:
    import tensorflow as tf

    return tf.distribute.experimental.CommunicationOptions(timeout_seconds=90, implementation="RING")


def of_epoch() -> Any:
    return lambda epoch, logs: None
