"""Ordinary cases: optimizers, precisions, steps of one's own, callbacks."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from case import X, Y, examples
from keras import ops
from models import callbacks, compiled, dense, layers, losses, optimizers, stack
from ordinary import NUMBERS, ordinary, regressor

OPTIMIZERS = {
    "Adam": {"amsgrad": True, "epsilon": 1e-3},
    "AdamW": {"epsilon": 1e-3},
    "Nadam": {"epsilon": 1e-3},
    "Adamax": {"epsilon": 1e-3},
    "Adagrad": {},
    "Adadelta": {"epsilon": 1e-3},
    "RMSprop": {"momentum": 0.5, "centered": True, "epsilon": 1e-3},
    "Ftrl": {},
    "Lamb": {"epsilon": 1e-3},
    "Adafactor": {},
}


def network(optimizer: Any, **arguments: Any) -> keras.Model:
    return regressor(stack(layers.Dense(8, "tanh"), layers.Dense(1)), optimizer, **arguments)


def add(name: str) -> None:
    def build() -> keras.Model:
        return network(getattr(optimizers, name)(0.01, **OPTIMIZERS[name]))

    build.__name__ = f"optimizer_{name}"
    ordinary(build, data=NUMBERS, bound=1e-5)


for name in OPTIMIZERS:
    add(name)


@ordinary(data=NUMBERS)
def nesterov_with_clipnorm():
    return network(optimizers.SGD(0.05, momentum=0.9, nesterov=True, clipnorm=0.1))


@ordinary(data=NUMBERS, epochs=3)
def cosine_decay_with_warmup():
    rate = optimizers.schedules.CosineDecay(0.0, 8, warmup_target=0.1, warmup_steps=3)
    return network(optimizers.SGD(rate, global_clipnorm=0.5))


@ordinary(data=NUMBERS, epochs=3)
def averaged_weights():
    return network(optimizers.Adam(0.01, epsilon=1e-3, use_ema=True, ema_momentum=0.8), metrics=[])


@ordinary(data=NUMBERS)
def accumulated_gradients():
    return network(optimizers.SGD(0.05, gradient_accumulation_steps=2, weight_decay=0.01))


def in_precision(policy: str) -> keras.Model:
    hidden = layers.Dense(16, "tanh", dtype=policy), layers.Dense(8, "tanh", dtype=policy)
    return regressor(stack(*hidden, layers.Dense(1, dtype="float32")), optimizers.SGD(0.02), metrics=[])


@ordinary(data=NUMBERS, bound=2e-3)
def network_in_float16():
    return in_precision("mixed_float16")


@ordinary(data=NUMBERS, bound=2**-7)
def network_in_bfloat16():
    return in_precision("mixed_bfloat16")


class GuideStep(keras.Model):
    """The step of Keras's guide, with trackers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = layers.Dense(8, "tanh"), layers.Dense(1)
        self.loss_tracker = keras.metrics.Mean(name="loss")
        self.mae = keras.metrics.MeanAbsoluteError(name="mae")

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs))

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.loss_tracker, self.mae]

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = losses.mean_squared_error(y, predicted)
            loss = ops.mean(loss)
        gradients = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply(gradients, self.trainable_weights)
        self.loss_tracker.update_state(loss)
        self.mae.update_state(y, predicted)
        return {"loss": self.loss_tracker.result(), "mae": self.mae.result()}

    def test_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        predicted = self(x, training=False)
        self.loss_tracker.update_state(ops.mean(losses.mean_squared_error(y, predicted)))
        self.mae.update_state(y, predicted)
        return {metric.name: metric.result() for metric in self.metrics}


@ordinary(data=NUMBERS, validation=NUMBERS)
def step_of_the_guide():
    model = GuideStep()
    model.compile(optimizers.SGD(0.05))
    return model


@ordinary(data=NUMBERS, validation=NUMBERS)
def steps_that_return_some_metrics():
    """The logs of its steps leave out a metric of the model."""

    class Some(GuideStep):
        def train_step(self, data: Any) -> dict[str, Any]:
            return {"loss": super().train_step(data)["loss"]}

        def test_step(self, data: Any) -> dict[str, Any]:
            return {"mae": super().test_step(data)["mae"]}

    model = Some()
    model.compile(optimizers.SGD(0.05))
    return model


class Distiller(keras.Model):
    """A student learns from labels and from a teacher that does not change."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = stack(layers.Dense(2)), stack(layers.Dense(8, "tanh"), layers.Dense(2))
        self.teacher.trainable = False

    def call(self, inputs: Any) -> Any:
        return self.student(inputs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True) -> Any:
        teacher = ops.softmax(self.teacher(x, training=False) / 2.0)
        own = super().compute_loss(x, y, y_pred, sample_weight)
        soft = losses.kl_divergence(teacher, ops.softmax(y_pred / 2.0))
        return 0.5 * own + 0.5 * ops.mean(soft)


@ordinary(validation=examples(50))
def distillation():
    return compiled(Distiller(), optimizers.SGD(0.1))


class GuideGan(keras.Model):
    """The GAN of Keras's guide: it draws its latent vectors in the step."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = keras.Sequential([keras.Input((3,)), layers.Dense(8, "tanh"), layers.Dense(8)])
        self.discriminator = stack(layers.Dense(8, "tanh"), layers.Dense(1))
        self.seeds = keras.random.SeedGenerator(1)
        self.d_loss, self.g_loss = keras.metrics.Mean(name="d_loss"), keras.metrics.Mean(name="g_loss")

    def compile(self, d_optimizer: Any, g_optimizer: Any, loss: Any) -> None:
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_of = d_optimizer, g_optimizer, loss

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return [self.d_loss, self.g_loss]

    def call(self, inputs: Any) -> Any:
        return self.discriminator(inputs)

    def train_step(self, real: Any) -> dict[str, Any]:
        rows = ops.shape(real)[0]
        made = self.generator(keras.random.normal((rows, 3), seed=self.seeds))
        both = ops.concatenate([made, real], axis=0)
        labels = ops.concatenate([ops.ones((rows, 1)), ops.zeros((rows, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_of(labels, self.discriminator(both))
        weights = self.discriminator.trainable_weights
        self.d_optimizer.apply(tape.gradient(d_loss, weights), weights)
        latent = keras.random.normal((rows, 3), seed=self.seeds)
        with tf.GradientTape() as tape:
            g_loss = self.loss_of(ops.zeros((rows, 1)), self.discriminator(self.generator(latent)))
        weights = self.generator.trainable_weights
        self.g_optimizer.apply(tape.gradient(g_loss, weights), weights)
        self.d_loss.update_state(d_loss)
        self.g_loss.update_state(g_loss)
        return {metric.name: metric.result() for metric in self.metrics}

    def test_step(self, real: Any) -> dict[str, Any]:
        self.d_loss.update_state(self.loss_of(ops.zeros((ops.shape(real)[0], 1)), self.discriminator(real)))
        return {"d_loss": self.d_loss.result()}


@ordinary(data=(X[:101],), random=True)
def gan_of_the_guide():
    model = GuideGan()
    model.compile(
        optimizers.Adam(0.003), optimizers.Adam(0.003), losses.BinaryCrossentropy(from_logits=True)
    )
    return model


class Shrinks(callbacks.Callback):
    """Lowers the learning rate by the loss of the epoch."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate = 0.1 / (1.0 + logs["val_loss"])


@ordinary(validation=examples(50), epochs=4, callbacks=lambda: [
    Shrinks(), callbacks.EarlyStopping("val_accuracy", patience=1, restore_best_weights=True),
    callbacks.LambdaCallback(on_epoch_begin=lambda epoch, logs: None), callbacks.TerminateOnNaN(),
])  # fmt: skip
def own_callbacks():
    return dense(optimizers.SGD(0.1))


@ordinary(epochs=4, callbacks=lambda: [callbacks.SwapEMAWeights()])
def swapped_averages():
    return dense(optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9))


def padded() -> tf.data.Dataset:
    """Rows of unequal length, filled up in each batch."""
    lengths = np.arange(64) % 5 + 1
    rows = tf.data.Dataset.from_tensor_slices((lengths, Y[:64]))
    rows = rows.map(lambda length, y: (tf.ones((length, 1)) * tf.cast(length, tf.float32), y))
    return rows.padded_batch(16, padded_shapes=([5, 1], []))


@ordinary(data=padded)
def padded_rows():
    return compiled(keras.Sequential([keras.Input((5, 1)), layers.Masking(), layers.GRU(4), layers.Dense(2)]))


def weighted() -> tf.data.Dataset:
    rows = tf.data.Dataset.from_tensor_slices((X, Y, np.linspace(0.1, 1.0, 200, dtype="float32")))
    return rows.filter(lambda x, y, weight: x[0] < 1.0).repeat().batch(20)


@ordinary(data=weighted, steps_per_epoch=4, held_out=examples(50))
def filtered_and_repeated():
    return dense(optimizers.SGD(0.1))
