"""What most models of the cases have in common."""

from typing import Any

import keras

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
