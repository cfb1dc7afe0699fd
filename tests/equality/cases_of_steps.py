"""Cases: steps of the user's own, with several optimizers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from case import case
from models import layers, optimizers

rng = np.random.default_rng(3)
LATENTS = rng.normal(size=(101, 3)).astype("float32")
REAL = rng.normal(size=(101, 4)).astype("float32") * [1, 2, 0.5, 1] + 1
CLASSES = np.eye(2, dtype="float32")[rng.integers(0, 2, 101)]
NO_TARGET = np.zeros(101, "float32")  # Keras's evaluate() and predict() want x alone
PAIR = {"real": REAL.astype("float32"), "latent": LATENTS}


class SeveralOptimizers(keras.Model):
    """Networks that are trained by optimizers of their own, on losses that a subclass defines."""

    def __init__(self) -> None:
        super().__init__()
        self.trackers = {name: keras.metrics.Mean(name) for name in self.names}

    names: tuple[str, ...] = ("d_loss", "g_loss")

    @property
    def metrics(self) -> list[keras.metrics.Metric]:
        return list(self.trackers.values())

    def change(self, tape: tf.GradientTape, loss: Any, net: keras.Model, optimizer: Any) -> None:
        optimizer.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)

    def track(self, *values: Any) -> dict[str, Any]:
        for tracker, value in zip(self.trackers.values(), values, strict=True):
            tracker.update_state(value)
        return {name: tracker.result() for name, tracker in self.trackers.items()}

    def test_step(self, data: Any) -> dict[str, Any]:
        x = data[0]
        value = keras.ops.mean(keras.ops.square(self(x)))
        return self.track(*[value] * len(self.names))


def net(inputs: int, outputs: int, *between: layers.Layer) -> keras.Model:
    return keras.Sequential(
        [keras.Input((inputs,)), layers.Dense(8, "tanh"), *between, layers.Dense(outputs)]
    )


def softplus_mean(values: Any) -> Any:
    return keras.ops.mean(keras.ops.softplus(values))


class Gan(SeveralOptimizers):
    """The discriminator changes first; the generator's loss reads its new weights."""

    def __init__(self, *between: layers.Layer) -> None:
        super().__init__()
        self.generator, self.discriminator = net(3, 4, *between), net(4, 1)

    def compile(self, d_optimizer: Any, g_optimizer: Any) -> None:
        super().compile()
        self.d_optimizer, self.g_optimizer = d_optimizer, g_optimizer

    def call(self, inputs: Any) -> Any:
        return self.discriminator(inputs["real"]) + self.discriminator(self.generator(inputs["latent"]))

    def d_loss(self, real: Any, made: Any) -> Any:
        return softplus_mean(self.discriminator(made)) + softplus_mean(-self.discriminator(real))

    def train_step(self, data: Any) -> dict[str, Any]:
        x = data[0]
        made = self.generator(x["latent"], training=True)
        with tf.GradientTape() as tape:
            d_loss = self.d_loss(x["real"], made)
        self.change(tape, d_loss, self.discriminator, self.d_optimizer)
        with tf.GradientTape() as tape:
            g_loss = softplus_mean(-self.discriminator(self.generator(x["latent"], training=True)))
        self.change(tape, g_loss, self.generator, self.g_optimizer)
        return self.track(d_loss, g_loss)


def compiled(model: keras.Model, *given: Any) -> keras.Model:
    model.compile(*given)
    return model


GAN = {"data": (PAIR, NO_TARGET)}


@case(**GAN)
def gan():
    return compiled(Gan(), optimizers.SGD(0.2, momentum=0.5), optimizers.RMSprop(0.01, epsilon=1e-3))


@case(**GAN)
def gan_with_synchronized_normalization():
    model = Gan(layers.BatchNormalization(synchronized=True))
    return compiled(model, optimizers.SGD(0.1), optimizers.SGD(0.05))


@case(**GAN)
def gan_with_scaled_losses():
    class Scaled(Gan):
        def change(self, tape: Any, loss: Any, net: Any, optimizer: Any) -> None:
            with tape:
                loss = optimizer.scale_loss(loss)
            super().change(tape, loss, net, optimizer)

    scaled = optimizers.LossScaleOptimizer(optimizers.SGD(0.1), initial_scale=1024.0)
    return compiled(Scaled(), scaled, optimizers.SGD(0.05))


class WassersteinGan(Gan):
    """A critic with a gradient penalty, which changes twice in a step."""

    def d_loss(self, real: Any, made: Any) -> Any:
        between = 0.5 * (real + made)
        with tf.GradientTape() as tape:
            tape.watch(between)
            score = self.discriminator(between, training=True)
        slope = keras.ops.sqrt(keras.ops.sum(keras.ops.square(tape.gradient(score, between)), axis=1) + 1e-12)
        penalty = keras.ops.mean(keras.ops.square(slope - 1.0))
        return keras.ops.mean(self.discriminator(made)) - keras.ops.mean(self.discriminator(real)) + penalty

    def train_step(self, data: Any) -> dict[str, Any]:
        x = data[0]
        made = self.generator(x["latent"], training=True)
        with tf.GradientTape() as tape:
            loss = self.d_loss(x["real"], made)
        self.change(tape, loss, self.discriminator, self.d_optimizer)
        return super().train_step(data)


@case(**GAN)
def wasserstein_gan():
    return compiled(WassersteinGan(), optimizers.Adam(0.01), optimizers.Adam(0.01))


class ConditionalGan(Gan):
    def __init__(self) -> None:
        super().__init__()
        self.generator, self.discriminator = net(5, 4), net(6, 1)

    def call(self, inputs: Any) -> Any:
        return self.discriminator(keras.ops.concatenate([inputs["real"], inputs["kind"]], 1))

    def train_step(self, data: Any) -> dict[str, Any]:
        x = data[0]
        kind = x["kind"]
        latent = keras.ops.concatenate([x["latent"], kind], 1)
        made = keras.ops.concatenate([self.generator(latent), kind], 1)
        with tf.GradientTape() as tape:
            d_loss = self.d_loss(keras.ops.concatenate([x["real"], kind], 1), made)
        self.change(tape, d_loss, self.discriminator, self.d_optimizer)
        with tf.GradientTape() as tape:
            made = keras.ops.concatenate([self.generator(latent), kind], 1)
            g_loss = softplus_mean(-self.discriminator(made))
        self.change(tape, g_loss, self.generator, self.g_optimizer)
        return self.track(d_loss, g_loss)


@case(data=({**PAIR, "kind": CLASSES}, NO_TARGET))
def conditional_gan():
    return compiled(ConditionalGan(), optimizers.Adam(0.02), optimizers.Adam(0.01))


class CyclePair(SeveralOptimizers):
    """Two networks between two spaces, each with an optimizer, from one persistent tape."""

    names = ("there", "back")

    def __init__(self) -> None:
        super().__init__()
        self.there, self.back = net(4, 3), net(3, 4)
        self.by_name = {"there": optimizers.Adam(0.02), "back": optimizers.SGD(0.05)}

    def call(self, inputs: Any) -> Any:
        return self.back(self.there(inputs["real"]))

    def train_step(self, data: Any) -> dict[str, Any]:
        x = data[0]
        a, b = x["real"], x["latent"]
        with tf.GradientTape(persistent=True) as tape:
            cycle = keras.ops.mean(keras.ops.abs(self.back(self.there(a)) - a))
            cycle += keras.ops.mean(keras.ops.abs(self.there(self.back(b)) - b))
            there = cycle + keras.ops.mean(keras.ops.square(self.there(a) - b))
            back = cycle + keras.ops.mean(keras.ops.square(self.back(b) - a))
        self.change(tape, there, self.there, self.by_name["there"])
        self.change(tape, back, self.back, self.by_name["back"])
        return self.track(there, back)


@case(**GAN)
def cycle_consistent_pair():
    return compiled(CyclePair())


class ActorCritic(SeveralOptimizers):
    """Advantages from the critic, whose loss is weighted by ``compile``'s optimizer."""

    names = ("actor", "critic")

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = net(4, 2), net(4, 1)
        self.critic_optimizer = optimizers.SGD(0.05, global_clipnorm=0.1)

    def call(self, inputs: Any) -> Any:
        return self.actor(inputs)

    def train_step(self, data: Any) -> dict[str, Any]:
        x, (action, reward) = data
        with tf.GradientTape(persistent=True) as tape:
            value = keras.ops.squeeze(self.critic(x), 1)
            chosen = keras.ops.sum(action * keras.ops.log_softmax(self.actor(x)), 1)
            actor = -keras.ops.mean(chosen * keras.ops.stop_gradient(reward - value))
            critic = keras.ops.mean(keras.ops.square(reward - value))
        self.change(tape, actor, self.actor, self.optimizer)
        self.change(tape, critic, self.critic, self.critic_optimizer)
        return self.track(actor, critic)


@case(data=(REAL.astype("float32"), (CLASSES, LATENTS[:, 0])))
def actor_critic():
    return compiled(ActorCritic(), optimizers.Adam(0.01))


class TwoRates(keras.Model):
    """Fine-tuning: a small learning rate for the body, another for the head."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = net(4, 6), layers.Dense(1)
        self.body_optimizer = optimizers.SGD(0.01)

    def call(self, inputs: Any) -> Any:
        return self.head(self.body(inputs))

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.compute_loss(x, y, predicted)
        body, head = self.body.trainable_variables, self.head.trainable_variables
        gradients = tape.gradient(loss, body + head)
        self.body_optimizer.apply(gradients[: len(body)], body)
        self.optimizer.apply(gradients[len(body) :], head)
        return self.compute_metrics(x, y, predicted)


@case(data=(REAL.astype("float32"), LATENTS[:, :1]))
def two_learning_rates():
    model = TwoRates()
    model.compile(optimizers.SGD(0.1), "mse", metrics=["mae"])
    return model


if hasattr(optimizers, "MultiOptimizer"):

    @case(data=(REAL.astype("float32"), LATENTS[:, :1]))
    def multi_optimizer():
        rates = optimizers.OptimizerMap(optimizers.SGD(0.1), {"head.*": optimizers.Adam(0.01)})
        model = keras.Sequential([keras.Input((4,)), layers.Dense(6, "tanh"), layers.Dense(1, name="head")])
        model.compile(optimizers.MultiOptimizer(rates), "mse")
        return model
