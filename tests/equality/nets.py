"""What the cases of nets have in common."""

from typing import Any

import keras
import tensorflow as tf
from case import X
from models import layers, optimizers, stack

#: Nothing but a silent difference is wrong.
NOT_SILENT = "equal or said or refused"

TARGET = X[:101, :1] * X[:101, 1:2] + X[:101, 2:3]
REGRESSION = (X[:101], TARGET)
POSITIVE = (X[:101], (TARGET > 0.3).astype("float32"))


def not_silent(part: str, **settings: Any) -> dict[str, Any]:
    """Settings of a case that several workers may refuse or warn of.

    Args:
        part: Regular expression for the part that the message names as the reason. The message is about
            several workers: others, such as that a loss is not finite, give no reason for a difference.
    """
    about = r"(?=[\s\S]*(one worker|each worker|several workers|own rows))"
    return {"expects": NOT_SILENT, "because": rf"{about}[\s\S]*({part})", **settings}


def embedding(loss: Any, units: int = 6, optimizer: Any = None) -> keras.Model:
    """A network of one output per row, for a loss over the rows of a batch."""
    model = stack(layers.Dense(16, "tanh"), layers.Dense(units))
    model.compile(optimizer or optimizers.SGD(0.05), loss)
    return model


def probability(loss: Any) -> keras.Model:
    model = stack(layers.Dense(16, "tanh"), layers.Dense(1, "sigmoid"))
    model.compile(optimizers.SGD(0.2), loss)
    return model


class OwnStep(keras.Model):
    """A network for steps of one's own: subclasses change its loss, its gradients or its logs."""

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.hidden, self.out = layers.Dense(16, "tanh"), layers.Dense(outputs)

    def build_layers(self) -> None:
        """Make the variables now, for subclasses that copy them."""
        self.hidden.build((None, 8))
        self.out.build((None, 16))

    def call(self, inputs: Any) -> Any:
        return self.out(self.hidden(inputs))

    def loss_of(self, x: Any, y: Any, predicted: Any) -> Any:
        return self.compute_loss(x, y, predicted)

    def changed(self, gradients: list[Any]) -> list[Any]:
        return gradients

    def logs(self, y: Any, predicted: Any) -> dict[str, Any]:
        return {}

    def train_step(self, data: Any) -> dict[str, Any]:
        x, y = data
        with tf.GradientTape() as tape:
            predicted = self(x, training=True)
            loss = self.loss_of(x, y, predicted)
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(self.changed(gradients), self.trainable_variables)
        return self.compute_metrics(x, y, predicted) | self.logs(y, predicted)


def stepping(model: keras.Model, optimizer: Any = None, **arguments: Any) -> keras.Model:
    """Compile a model with a step of its own."""
    model.compile(optimizer or optimizers.SGD(0.05), **({"loss": "mse", "metrics": ["mae"]} | arguments))
    return model
