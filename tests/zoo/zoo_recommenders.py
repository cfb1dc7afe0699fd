"""Recommenders of keras-rs, as its examples write them."""

from typing import Any

import keras
import keras_hub
import keras_rs
import numpy as np
from zoo import EXAMPLES, OF_BATCH, rng, zoo

layers = keras.layers
USERS, ITEMS = 12, 15

NUMBERS = rng.normal(size=(EXAMPLES, 4)).astype("float32")
IDS = rng.integers(0, 10, size=(EXAMPLES, 3))
CLICKS = rng.integers(0, 2, size=(EXAMPLES, 1)).astype("float32")
RATINGS = ({"numbers": NUMBERS, "ids": IDS}, CLICKS)
PAIRS = (rng.integers(0, USERS, size=EXAMPLES), rng.integers(0, ITEMS, size=EXAMPLES))
HISTORIES = rng.integers(1, ITEMS, size=(EXAMPLES, 6))


def compiled(model: keras.Model, loss: Any, metrics: Any = ()) -> keras.Model:
    model.compile(keras.optimizers.Adagrad(0.05), loss, metrics=list(metrics))
    return model


def features() -> tuple[dict[str, Any], list[Any]]:
    inputs = {
        "numbers": keras.Input((4,), name="numbers"),
        "ids": keras.Input((3,), dtype="int32", name="ids"),
    }
    embedded = [layers.Embedding(10, 8)(inputs["ids"][:, number]) for number in range(3)]
    return inputs, [layers.Dense(8, "relu")(inputs["numbers"]), *embedded]


@zoo(data=RATINGS)
def dlrm():
    inputs, parts = features()
    crossed = keras_rs.layers.DotInteraction()(parts)
    hidden = layers.Dense(8, "relu")(layers.Concatenate()([parts[0], crossed]))
    return compiled(
        keras.Model(inputs, layers.Dense(1, "sigmoid")(hidden)), "binary_crossentropy", ["accuracy"]
    )


class TwoTowers(keras.Model):
    """Every other item of the batch is a negative example."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = layers.Embedding(USERS, 8), layers.Embedding(ITEMS, 8)
        self.correction = keras_rs.layers.RemoveAccidentalHits()

    def build(self, input_shape: Any) -> None:
        self.users.build(input_shape)
        self.items.build(input_shape)

    def call(self, inputs: Any) -> Any:
        return self.users(inputs)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        logits = keras.ops.matmul(y_pred, keras.ops.transpose(self.items(y)))
        labels = keras.ops.eye(keras.ops.shape(logits)[0])
        logits = self.correction(logits, labels, y)
        return keras.ops.mean(keras.losses.categorical_crossentropy(labels, logits, from_logits=True))


class BuiltByItsLoss(TwoTowers):
    def build(self, input_shape: Any) -> None:
        self.built = True  # compute_loss() is the first that uses the items


def retrieval(kind: type[TwoTowers]) -> keras.Model:
    made = kind()
    made.compile(keras.optimizers.Adagrad(0.05))
    return made


@zoo(data=PAIRS, only_virtual=OF_BATCH)
def two_towers():
    return retrieval(TwoTowers)


@zoo(data=PAIRS, only_virtual=OF_BATCH, known="fit.model cannot build the layers that compute_loss() builds")
def two_towers_that_the_loss_builds():
    return retrieval(BuiltByItsLoss)


class SelfAttention(layers.Layer):
    """A block of SASRec: what is earlier attends to nothing that is later."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.attention = layers.MultiHeadAttention(2, size // 2)
        self.forward = keras.Sequential([layers.Dense(size, "relu"), layers.Dense(size)])
        self.norms = [layers.LayerNormalization(), layers.LayerNormalization()]

    def call(self, x: Any) -> Any:
        x = self.norms[0](x + self.attention(x, x, use_causal_mask=True))
        return self.norms[1](x + self.forward(x))


@zoo(data=(HISTORIES, np.roll(HISTORIES, -1, axis=1)))
def sasrec():
    inputs = keras.Input((6,), dtype="int32")
    embedded = keras_hub.layers.TokenAndPositionEmbedding(ITEMS, 6, 8)(inputs)
    hidden = SelfAttention(8)(SelfAttention(8)(embedded))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return compiled(keras.Model(inputs, layers.Dense(ITEMS)(hidden)), loss)
