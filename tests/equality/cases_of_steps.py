"""Cases: steps of the user's own, with several optimizers."""

from typing import Any

import keras
import numpy as np
import tensorflow as tf
from case import case
from models import layers, optimizers

import tfdistr

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


class ScaledOnce(TwoRates):
    """One loss is scaled by one optimizer, whose gradients two optimizers apply, one of them twice."""

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.optimizer.scale_loss(self.compute_loss(x, y, predicted))
        body, head = self.body.trainable_variables, self.head.trainable_variables
        gradients = tape.gradient(loss, body + head)
        self.optimizer.apply(gradients[:1], body[:1])
        self.body_optimizer.apply(gradients[1 : len(body)], body[1:])
        self.optimizer.apply(gradients[len(body) :], head)
        return self.compute_metrics(x, y, predicted)


@case(data=(REAL.astype("float32"), LATENTS[:, :1]))
def scaled_once():
    model = ScaledOnce()
    model.compile(optimizers.SGD(0.1), "mse", metrics=["mae"])
    model(REAL[:1].astype("float32"))
    model.optimizer.build(model.trainable_variables)  # its first gradients are of some of them only
    return model


if hasattr(optimizers, "MultiOptimizer"):

    @case(data=(REAL.astype("float32"), LATENTS[:, :1]))
    def multi_optimizer():
        rates = optimizers.OptimizerMap(optimizers.SGD(0.1), {"head.*": optimizers.Adam(0.01)})
        model = keras.Sequential([keras.Input((4,)), layers.Dense(6, "tanh"), layers.Dense(1, name="head")])
        model.compile(optimizers.LossScaleOptimizer(optimizers.MultiOptimizer(rates)), "mse")
        return model


# --- Losses over the batch ------------------------------------------------------------------------


def cross_entropy(logits: Any, targets: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))


def clip_loss(y_true: Any, y_pred: Any) -> Any:
    """The pairs of a batch against each other, in both directions."""
    images, texts = tf.split(tfdistr.gather(y_pred), 2, axis=1)
    logits = tf.matmul(images, texts, transpose_b=True)
    pairs = tf.range(tf.shape(logits)[0])
    return cross_entropy(logits, pairs) + cross_entropy(tf.transpose(logits), pairs)


def simclr_loss(y_true: Any, y_pred: Any) -> Any:
    """Two views of each row: each view against all others."""
    views = tf.math.l2_normalize(tf.concat(tf.split(tfdistr.gather(y_pred), 2, axis=1), 0), axis=1)
    rows = tf.shape(views)[0]
    logits = tf.matmul(views, views, transpose_b=True) / 0.5 - 1e9 * tf.eye(rows)
    return cross_entropy(logits, tf.math.floormod(tf.range(rows) + rows // 2, rows))


def two_towers() -> keras.Model:
    real, latent = keras.Input((4,), name="real"), keras.Input((3,), name="latent")
    outputs = layers.Concatenate()([net(4, 5)(real), net(3, 5)(latent)])
    return keras.Model({"real": real, "latent": latent}, outputs)


@case(**GAN)
def clip():
    model = two_towers()
    model.compile(optimizers.Adam(0.01), clip_loss)
    return model


@case(**GAN)
def simclr():
    model = two_towers()
    model.compile(optimizers.SGD(0.5), simclr_loss)
    return model


class Contrastive(keras.Model):
    """A step of its own, which scales no loss; ``gathered`` has the rows of all workers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = two_towers()

    def call(self, inputs: Any) -> Any:
        return self.body(inputs)

    def gathered(self, rows: Any) -> Any:
        return tf.distribute.get_replica_context().all_gather(rows, axis=0)

    def loss_of(self, rows: Any) -> Any:
        logits = tf.matmul(rows, rows, transpose_b=True) - 1e9 * tf.eye(tf.shape(rows)[0])
        return cross_entropy(logits, tf.math.floormod(tf.range(tf.shape(rows)[0]) + 1, tf.shape(rows)[0]))

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            loss = self.loss_of(self.gathered(self(data[0], training=True)))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        self._loss_tracker.update_state(loss)
        return {"loss": self._loss_tracker.result()}


ZEROS = np.zeros((101, 10), "float32")  # what the loss of compile() compares with, in evaluate()


@case(data=(PAIR, ZEROS))
def all_gather():
    model = Contrastive()
    model.compile(optimizers.SGD(0.5), "mse")
    return model


class SecondDerivative(Contrastive):
    """The slope of a sum over all pairs is a part of the loss."""

    def gathered(self, rows: Any) -> Any:
        return tfdistr.gather(rows)

    def train_step(self, data: Any) -> dict[str, Any]:
        with tf.GradientTape() as tape:
            rows = self(data[0], training=True)
            with tf.GradientTape() as inner:
                inner.watch(rows)
                everything = self.gathered(rows)
                energy = tf.reduce_sum(tf.tanh(tf.matmul(rows, everything, transpose_b=True)) / 100.0)
            slope = inner.gradient(energy, rows)
            loss = self.loss_of(self.gathered(rows)) + tf.reduce_mean(tf.square(slope))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        self._loss_tracker.update_state(loss)
        return {"loss": self._loss_tracker.result()}


@case(data=(PAIR, ZEROS))
def second_derivative():
    model = SecondDerivative()
    model.compile(optimizers.SGD(0.5), "mse")
    return model


@case(data=(REAL.astype("float32"), CLASSES[:, 0] > 0.5))
def gathered_labels():
    """Labels of all workers, as logical values; the last batch leaves a worker without rows."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        rows, kinds = tfdistr.gather(y_pred), tfdistr.gather(y_true)
        same = tf.cast(tf.equal(kinds, tf.transpose(kinds)), tf.float32)
        return tf.reduce_mean(tf.square(tf.matmul(rows, rows, transpose_b=True) - same))

    model = net(4, 5)
    model.compile(optimizers.SGD(0.01), loss)
    return model


SHARED_LOSSES = "the replicas of one process share the list of added losses, so history counts them twice"


@case(data=(REAL[:97].astype("float32"), LATENTS[:97]), not_mirrored=SHARED_LOSSES)
def balance_in_a_layer():
    """A mixture of experts, whose layer adds a loss over the whole batch."""

    class Balanced(layers.Layer):
        def call(self, inputs: Any) -> Any:
            use = keras.ops.softmax(inputs)
            everywhere = tfdistr.gather(use)
            self.add_loss(10.0 * keras.ops.sum(keras.ops.square(keras.ops.mean(everywhere, 0) - 0.2)))
            return use

    model = keras.Sequential([keras.Input((4,)), layers.Dense(5), Balanced(), layers.Dense(3)])
    model.compile(optimizers.SGD(0.1), "mse")
    return model
