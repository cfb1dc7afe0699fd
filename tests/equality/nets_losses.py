"""Cases: losses over the rows of a batch."""

from typing import Any

import keras
from case import case
from keras import ops
from models import layers, losses, optimizers, stack
from nets import POSITIVE, REGRESSION, TARGET, embedding, not_silent, probability

OVER_ROWS = not_silent("loss")
OF_NUMBERS = {"data": REGRESSION, **OVER_ROWS}
OF_PROBABILITIES = {"data": POSITIVE, **OVER_ROWS}


def distances(rows: Any, others: Any) -> Any:
    """Squared distances of all rows of one matrix to all rows of another."""
    return ops.sum(ops.square(ops.expand_dims(rows, 1) - ops.expand_dims(others, 0)), axis=-1)


def centered(values: Any) -> Any:
    return values - ops.mean(values, axis=0, keepdims=True)


def covariance(rows: Any) -> Any:
    rows = centered(rows)
    return ops.matmul(ops.transpose(rows), rows) / ops.cast(ops.shape(rows)[0], "float32")


def without_diagonal(matrix: Any) -> Any:
    return matrix * (1.0 - ops.eye(ops.shape(matrix)[0]))


@case(**OVER_ROWS)
def batch_hard_triplets():
    """The farthest row of the same class, and the nearest of another, for each row."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        kinds = ops.reshape(y_true, (-1, 1))
        same = ops.cast(ops.equal(kinds, ops.transpose(kinds)), "float32")
        apart = distances(y_pred, y_pred)
        farthest = ops.max(apart * same, axis=1)
        nearest = ops.min(apart + 1e3 * same, axis=1)
        return ops.mean(ops.relu(farthest - nearest + 1.0))

    return embedding(loss, optimizer=optimizers.SGD(0.005))


@case(**OVER_ROWS)
def triplets_per_row():
    """The same loss without its mean: one value for each row, which other rows decide."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        kinds = ops.reshape(y_true, (-1, 1))
        other = ops.cast(ops.not_equal(kinds, ops.transpose(kinds)), "float32")
        return ops.sum(other * ops.exp(-distances(y_pred, y_pred)), axis=1)

    return embedding(loss)


@case(**OVER_ROWS, predict_bound=5e-6)  # a long embedding: a rounding of the weights is more there
def nt_xent():
    def loss(y_true: Any, y_pred: Any) -> Any:
        first, second = ops.split(y_pred, 2, axis=1)
        views = ops.normalize(ops.concatenate([first, second], axis=0), axis=1)
        count = ops.shape(views)[0]
        logits = ops.matmul(views, ops.transpose(views)) / 0.5 - 1e9 * ops.eye(count)
        partners = ops.mod(ops.arange(count) + count // 2, count)
        return ops.mean(losses.sparse_categorical_crossentropy(partners, logits, from_logits=True))

    return embedding(loss)


@case(**OVER_ROWS)
def deep_coral():
    """The covariances of two domains, which are the halves of the output."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        source, target = ops.split(y_pred, 2, axis=1)
        return ops.mean(ops.square(covariance(source) - covariance(target)))

    return embedding(loss)


@case(**OVER_ROWS)
def maximum_mean_discrepancy():
    def loss(y_true: Any, y_pred: Any) -> Any:
        a, b = ops.split(y_pred, 2, axis=1)

        def kernel(rows: Any, others: Any) -> Any:
            return ops.mean(ops.exp(-distances(rows, others)))

        return kernel(a, a) + kernel(b, b) - 2.0 * kernel(a, b)

    return embedding(loss)


@case(**OVER_ROWS)
def barlow_twins():
    def loss(y_true: Any, y_pred: Any) -> Any:
        a, b = ops.split(y_pred, 2, axis=1)
        a = centered(a) / (ops.std(a, axis=0) + 1e-2)
        b = centered(b) / (ops.std(b, axis=0) + 1e-2)
        product = ops.matmul(ops.transpose(a), b) / ops.cast(ops.shape(a)[0], "float32")
        on = ops.sum(ops.square(ops.diagonal(product) - 1.0))
        return on + 0.05 * ops.sum(ops.square(without_diagonal(product)))

    return embedding(loss, optimizer=optimizers.SGD(0.01))


@case(**OVER_ROWS)
def vicreg():
    def loss(y_true: Any, y_pred: Any) -> Any:
        a, b = ops.split(y_pred, 2, axis=1)
        invariance = ops.mean(ops.square(a - b))
        spread = ops.mean(ops.relu(1.0 - ops.sqrt(ops.var(a, axis=0) + 1e-4)))
        return invariance + spread + 0.1 * ops.sum(ops.square(without_diagonal(covariance(a))))

    return embedding(loss)


@case(**OVER_ROWS)
def center_of_each_class():
    """The distance of the rows of a class to their mean in the batch."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        kinds = ops.one_hot(ops.reshape(y_true, (-1,)), 2)
        sums = ops.matmul(ops.transpose(kinds), y_pred)
        centers = sums / (ops.expand_dims(ops.sum(kinds, axis=0), 1) + 1e-6)
        return ops.mean(ops.square(y_pred - ops.matmul(kinds, centers)), axis=-1)

    return embedding(loss)


@case(**OF_NUMBERS)
def pairwise_ranking():
    """A hinge for each pair of rows that are in the wrong order."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        before = ops.cast(y_true > ops.transpose(y_true), "float32")
        return ops.sum(before * ops.relu(1.0 - y_pred + ops.transpose(y_pred))) / (ops.sum(before) + 1.0)

    return embedding(loss, 1)


@case(**OF_NUMBERS)
def pearson_correlation():
    def loss(y_true: Any, y_pred: Any) -> Any:
        a, b = centered(y_true), centered(y_pred)
        return 1.0 - ops.sum(a * b) / ops.sqrt(ops.sum(a * a) * ops.sum(b * b) + 1e-6)

    return embedding(loss, 1)


@case(**OF_NUMBERS)
def share_of_variance():
    """R squared as a loss: its denominator is the variance of the targets of the batch."""

    def loss(y_true: Any, y_pred: Any) -> Any:
        return ops.sum(ops.square(y_true - y_pred)) / (ops.sum(ops.square(centered(y_true))) + 1e-3)

    return embedding(loss, 1)


@case(**OF_PROBABILITIES)
def soft_f1():
    def loss(y_true: Any, y_pred: Any) -> Any:
        hits = ops.sum(y_true * y_pred)
        return 1.0 - 2.0 * hits / (ops.sum(y_true) + ops.sum(y_pred) + 1e-3)

    return probability(loss)


@case(**OF_PROBABILITIES)
def dice():
    return probability(losses.Dice())


@case(**OF_PROBABILITIES)
def tversky():
    return probability(losses.Tversky(alpha=0.3, beta=0.7))


@case(**OF_PROBABILITIES)
def focal_tversky():
    def loss(y_true: Any, y_pred: Any) -> Any:
        hits, wrong = ops.sum(y_true * y_pred), ops.sum((1.0 - y_true) * y_pred)
        lost = ops.sum(y_true * (1.0 - y_pred))
        return ops.power(1.0 - (hits + 1.0) / (hits + 0.3 * wrong + 0.7 * lost + 1.0), 0.75)

    return probability(loss)


@case(**OVER_ROWS)
def circle():
    """Keras's loss of pairs of rows, whose lengths it wants to be 1."""
    model = stack(layers.Dense(16, "tanh"), layers.Dense(6), layers.UnitNormalization())
    model.compile(optimizers.SGD(0.05), losses.Circle(gamma=4.0, margin=0.4))
    return model


@case(data=REGRESSION, **not_silent("regularizer|loss"))
def regularizer_over_the_batch():
    """An activity regularizer of a sparse coder: the mean activation of each unit is pushed to a target."""

    @keras.saving.register_keras_serializable()
    class MeanActivation(keras.regularizers.Regularizer):
        def __call__(self, activations: Any) -> Any:
            return ops.sum(ops.square(ops.mean(activations, axis=0) - 0.1))

        def get_config(self) -> dict[str, Any]:
            return {}

    coder = layers.Dense(16, "sigmoid", activity_regularizer=MeanActivation())
    model = stack(coder, layers.Dense(1))
    model.compile(optimizers.SGD(0.05), "mse")
    return model


@case(data=REGRESSION, **not_silent("loss"))
def added_by_a_helper():
    """The statistic of the batch is computed two calls below the layer."""

    def spread(rows: Any) -> Any:
        return ops.mean(ops.relu(1.0 - ops.std(rows, axis=0)))

    class Spread(layers.Layer):
        def call(self, inputs: Any) -> Any:
            self.note(inputs)
            return inputs

        def note(self, inputs: Any) -> None:
            self.add_loss(0.5 * spread(inputs))

    model = stack(layers.Dense(6, "tanh"), Spread(), layers.Dense(1))
    model.compile(optimizers.SGD(0.05), "mse")
    return model


@case(data=REGRESSION, **not_silent("loss"))
def balanced_experts():
    """The loss of a switch transformer: share of the rows times mean probability, for each expert."""

    class Experts(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.experts = layers.Dense(4, "softmax"), [layers.Dense(3) for _ in range(4)]

        def call(self, inputs: Any) -> Any:
            use = self.gate(inputs)
            chosen = ops.one_hot(ops.argmax(use, axis=-1), 4)
            self.add_loss(ops.sum(ops.mean(chosen, axis=0) * ops.mean(use, axis=0)))
            outputs = ops.stack([expert(inputs) for expert in self.experts], axis=1)
            return ops.sum(outputs * ops.expand_dims(use, -1), axis=1)

    model = stack(Experts(), layers.Dense(1))
    model.compile(optimizers.SGD(0.05), "mse")
    return model


@case(data=(REGRESSION[0], {"value": TARGET, "twin": TARGET}), **not_silent("loss|twin"))
def one_output_of_two():
    """Only the second of two outputs has a loss over the batch."""

    def correlation(y_true: Any, y_pred: Any) -> Any:
        a, b = centered(y_true), centered(y_pred)
        return 1.0 - ops.sum(a * b) / ops.sqrt(ops.sum(a * a) * ops.sum(b * b) + 1e-6)

    inputs = keras.Input((8,))
    hidden = layers.Dense(16, "tanh")(inputs)
    outputs = {"value": layers.Dense(1)(hidden), "twin": layers.Dense(1)(hidden)}
    model = keras.Model(inputs, outputs)
    model.compile(optimizers.SGD(0.05), {"value": "mse", "twin": correlation})
    return model
