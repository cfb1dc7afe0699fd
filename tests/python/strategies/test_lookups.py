"""Embeddings in a step: the rows that are read, and when rows of equal index may be added."""

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdistr import tf_internals

SGD = keras.optimizers.SGD
rng = np.random.default_rng(0)
WORDS = rng.integers(-50, 50, (16, 4))
Y = rng.integers(0, 3, 16)


class Doubled(keras.layers.Embedding):
    """A user's own layer."""

    def call(self, inputs: Any) -> Any:
        return 2 * super().call(inputs)


def network(
    layer: Callable[..., keras.layers.Layer] = keras.layers.Embedding, optimizer: Any = None, **options: Any
) -> keras.Model:
    keras.utils.set_random_seed(1)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(options.pop("policy", before))
    try:
        words = keras.Input([4], dtype=options.pop("words", "int64"))
        embedding = layer(50, 3, **options)
        rows = keras.layers.Concatenate()([embedding(words), embedding(words[:, ::-1])])
        outputs = keras.layers.Dense(3, "softmax")(keras.layers.Flatten()(rows))
        model = keras.Model(words, outputs)
    finally:
        keras.config.set_dtype_policy(before)
    model.compile(optimizer or SGD(0.5), "sparse_categorical_crossentropy")
    model.optimizer.build(model.trainable_variables)
    return model


def trained(model: keras.Model, by_rows: bool, words: Any = WORDS) -> tuple[list[np.ndarray], set[str]]:
    """The weights after four steps, and the kinds of operations of a step that use the table."""

    @tf.function(autograph=False, reduce_retracing=True)
    def step(x: tf.Tensor, y: tf.Tensor) -> Any:
        with tf_internals.row_lookups(model) if by_rows else contextlib.nullcontext():
            return model.train_step((x, y))

    for count in (16, 7, 1, 16):  # the number of rows is not in the graph
        step(tf.constant(words[:count]), tf.constant(Y[:count]))
    specs = [tf.TensorSpec([None, *part.shape[1:]], part.dtype) for part in (words, Y)]
    graph = step.get_concrete_function(*specs).graph
    (table,) = [layer._embeddings for layer in model.layers if isinstance(layer, keras.layers.Embedding)]
    handles = {inside.name for outside, inside in graph.captures if outside is table.handle}
    users = (op.type for op in graph.get_operations() if handles & {tensor.name for tensor in op.inputs})
    return [v.numpy() for v in model.variables], set(users)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"words": "float32"},
        {"mask_zero": True},
        {"policy": "mixed_bfloat16"},
        {"dtype": "float64"},
        {"optimizer": keras.optimizers.Adam},
    ],
    ids=lambda options: next(iter(options), "usual"),
)
def test_the_rows_are_those_of_keras_to_the_bit(options):
    words, kind = WORDS.astype(options.get("words", "int64")), options.pop("optimizer", SGD)

    def make() -> keras.Model:
        return network(optimizer=kind(0.01 if kind is not SGD else 0.5), **options)

    expected, of_keras = trained(make(), False, words)
    weights, by_rows = trained(make(), True, words)
    assert not np.array_equal(weights[0], make().get_weights()[0]), "nothing was trained"
    for mine, theirs in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert "ReadVariableOp" in of_keras
    assert "ResourceGather" in by_rows - of_keras
    assert "ReadVariableOp" not in by_rows


def with_lora(*arguments: Any, **options: Any) -> keras.layers.Layer:
    return keras.layers.Embedding(*arguments, lora_rank=2, **options)


def with_its_own_call(*arguments: Any, **options: Any) -> keras.layers.Layer:
    layer = keras.layers.Embedding(*arguments, **options)
    keras_call = layer.call
    layer.call = lambda inputs: 2 * keras_call(inputs)
    return layer


def with_a_regularizer(*arguments: Any) -> keras.layers.Layer:
    return keras.layers.Embedding(*arguments, embeddings_regularizer="l2")


def with_a_cast_table(*arguments: Any) -> keras.layers.Layer:
    return keras.layers.Embedding(*arguments, dtype="mixed_bfloat16")


@pytest.mark.parametrize(
    "layer", [Doubled, with_lora, with_its_own_call, with_a_regularizer, with_a_cast_table]
)
def test_other_layers_are_left_alone(layer):
    expected, _ = trained(network(layer), False)
    weights, operations = trained(network(layer), True)
    for mine, theirs in zip(weights, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert "ResourceGather" not in operations


def test_nothing_is_left_on_the_layer():
    model = network()
    (layer,) = [layer for layer in model.layers if isinstance(layer, keras.layers.Embedding)]
    before = set(vars(layer))
    with tf_internals.row_lookups(model):
        assert set(vars(layer)) - before == {"call"}
    assert set(vars(layer)) == before


class Slower(SGD):
    """A user's own way to change a variable."""


def replaced() -> SGD:
    optimizer = SGD(0.1)
    optimizer.update_step = lambda gradient, variable, rate: None
    return optimizer


@pytest.mark.parametrize(
    ("make", "adds"),
    [
        (lambda: SGD(0.1), True),
        (lambda: SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1), True),
        (lambda: keras.optimizers.LossScaleOptimizer(SGD(0.1)), True),
        (lambda: SGD(0.1, clipnorm=1.0), False),
        (lambda: SGD(0.1, global_clipnorm=1.0), False),
        (lambda: SGD(0.1, clipvalue=1.0), False),
        (lambda: keras.optimizers.LossScaleOptimizer(SGD(0.1, clipnorm=1.0)), False),
        (keras.optimizers.Adam, False),
        (keras.optimizers.RMSprop, False),
        (lambda: Slower(0.1), False),
        (replaced, False),
    ],
)
def test_only_where_an_optimizer_needs_their_sum_rows_are_added(make, adds):
    assert tf_internals.adds_rows(make()) is adds


def test_the_step_of_fewer_passes_is_that_of_keras():
    model = network()
    with tf_internals.fewer_passes(model, after_all_gradients=False):
        assert "update_step" in vars(model.optimizer)
        assert tf_internals.adds_rows(model.optimizer)


@pytest.mark.parametrize("optimizer", [SGD(0.5), SGD(0.5, momentum=0.9)], ids=["plain", "momentum"])
def test_added_rows_have_the_effect_of_all_rows(optimizer):
    table = keras.Variable(np.ones((9, 2), "float32"))
    rows = tf.IndexedSlices(tf.constant([[1.0, 2.0], [4.0, 8.0], [0.5, 0.25]]), [3, 1, 3], [9, 2])
    added = tf.IndexedSlices(tf.constant([[1.5, 2.25], [4.0, 8.0]]), [3, 1], [9, 2])
    results = []
    for gradient in (rows, added):
        own = type(optimizer).from_config(optimizer.get_config())
        table.assign(np.ones((9, 2)))
        own.apply([gradient], [table])
        results.append(table.numpy())
    np.testing.assert_array_equal(*results)
    assert (results[0] != 1).any(1).tolist() == [i in (1, 3) for i in range(9)]
