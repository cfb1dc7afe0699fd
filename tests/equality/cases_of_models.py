"""Cases: kinds of models, layers, losses, optimizers."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from case import SENTENCES, TOKENS, WEIGHTED, X, Y, case, examples
from models import (
    IN_A_CONDITION,
    compiled,
    dense,
    layers,
    losses,
    metrics,
    optimizers,
    sentences,
    stack,
    with_layers,
)

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


class NestedLogs(TwoLayers):
    """Its logs have the dictionary of the metrics of ``compile()``, as Keras's guide writes them."""

    def update_and_log(self, data: Any, predicted: Any, loss: Any) -> dict[str, Any]:
        x, y = data
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss, sample_weight=keras.ops.shape(x)[0])
            else:
                metric.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=predicted)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return self.update_and_log(data, predicted, loss)

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        predicted = self(x, training=False)
        return self.update_and_log(data, predicted, self.compute_loss(y=y, y_pred=predicted))


@case(validation=examples(33))
def nested_logs():
    return compiled(NestedLogs(), metrics=["accuracy", metrics.SparseCategoricalAccuracy(name="second")])


class Autoencoder(keras.Model):
    """Its steps take ``x`` alone. The loss would be another if ``data`` were a tuple of it."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = layers.Dense(3, "tanh"), layers.Dense(8)
        self.tracker = metrics.Mean(name="loss")

    def call(self, inputs: Any) -> Any:
        return self.decoder(self.encoder(inputs))

    def errors(self, data: Any) -> Any:
        return keras.ops.mean((self(data) - data) ** 2, axis=-1)

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            errors = self.errors(data)
            loss = keras.ops.mean(errors)
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        self.tracker.update_state(errors)
        return {"loss": self.tracker.result()}

    def test_step(self, data: Any) -> dict[str, Any]:
        self.tracker.update_state(self.errors(data))
        return {"loss": self.tracker.result()}


@case(data=(X[:101],), validation=(X[:33],), arrays=True)
def x_alone():
    model = Autoencoder()
    model.compile(optimizers.SGD(0.1, momentum=0.9))
    return model


class Denoiser(keras.Model):
    """A diffusion model without ``call()``: its steps call its network. The noise comes as data."""

    def __init__(self, *first: Any) -> None:
        super().__init__()
        self.network = keras.Sequential([*first, layers.Dense(16, "relu"), layers.Dense(8)])
        self.noise_loss = metrics.Mean(name="n_loss")
        self.image_loss = metrics.Mean(name="i_loss")

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.noise_loss, self.image_loss]

    def losses_of(self, data: Any, training: bool) -> tuple[Any, Any]:
        images, noises = data
        noisy = 0.8 * images + 0.6 * noises
        predicted = self.network(noisy, training=training)
        return self.loss(noises, predicted), self.loss(images, (noisy - 0.6 * predicted) / 0.8)

    def log(self, noise: Any, image: Any) -> dict[str, Any]:
        self.noise_loss.update_state(noise)
        self.image_loss.update_state(image)
        return {metric.name: metric.result() for metric in self.metrics}

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            noise, image = self.losses_of(data, training=True)
            loss = keras.ops.mean(noise)
        weights = self.network.trainable_weights
        self.optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        return self.log(noise, image)

    def test_step(self, data: Any) -> dict[str, Any]:
        return self.log(*self.losses_of(data, training=False))


NOISE = (X[:101], X[::-1][:101])


def denoiser(*first: Any) -> keras.Model:
    model = Denoiser(*first)
    model.compile(optimizer=optimizers.SGD(0.1, momentum=0.9), loss=losses.mean_absolute_error)
    return model


@case(data=NOISE, validation=NOISE, predicts=False)
def without_call():
    return denoiser(keras.Input((8,)))


@case
def run_eagerly():
    return dense(run_eagerly=True)


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


# Numbers of rows of a table that is too large to be sent whole. Many occur twice in a batch. The last batch,
# of one example, leaves workers without examples.
IDS = np.minimum(np.random.default_rng(4).zipf(1.2, (97, 6)), 50_000) - 1


def table(optimizer: Any, *, twice: bool = False, **arguments: Any) -> keras.Model:
    words = keras.Input((6,), dtype="int32")
    embedding = layers.Embedding(50_000, 4, name="table")
    rows = layers.Flatten()(embedding(words))
    if twice:
        rows = layers.Concatenate()([rows, layers.Flatten()(embedding(words[:, ::-1]))])
    return compiled(keras.Model(words, layers.Dense(2)(rows)), optimizer, **arguments)


TABLE = {"data": (IDS, Y[:97])}


@case(**TABLE)
def table_of_many_rows():
    return table(optimizers.SGD(0.5))


@case(**TABLE)
def table_used_twice():
    return table(optimizers.SGD(0.5, momentum=0.9), twice=True)


@case(**TABLE)
def table_with_adam():
    return table(optimizers.Adam(0.01, epsilon=1e-3))


@case(**TABLE)
def table_with_global_clipnorm():
    return table(optimizers.SGD(0.5, global_clipnorm=0.05))


@case(**TABLE)
def table_with_clipvalue():
    return table(optimizers.SGD(0.5, clipvalue=0.002))


@case(**TABLE)
def table_with_loss_scale():
    return table(optimizers.LossScaleOptimizer(optimizers.SGD(0.5), initial_scale=1024.0))


@case(**TABLE, not_mirrored=IN_A_CONDITION)
def table_with_gradient_accumulation():
    return table(optimizers.SGD(0.5, gradient_accumulation_steps=2))


@case(**TABLE, not_mirrored=IN_A_CONDITION)
def table_in_steps_per_execution():
    return table(optimizers.SGD(0.5), steps_per_execution=3)


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
