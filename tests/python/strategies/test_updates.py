"""How the training loop changes weights: to the bits that Keras's own step gives, with fewer kernels."""

import contextlib
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdistr import tf_internals

SGD = keras.optimizers.SGD
rng = np.random.default_rng(0)
X = rng.normal(size=(16, 5)).astype("float32")
Y = rng.integers(0, 3, 16)
GRADIENT_DESCENT, MOMENTUM = "ResourceApplyGradientDescent", "ResourceApplyKerasMomentum"


class Slower(SGD):
    """A user's own way to change a variable."""

    def update_step(self, gradient, variable, learning_rate):
        super().update_step(0.5 * gradient, variable, learning_rate)


def dense(optimizer: keras.optimizers.Optimizer, dtype: str = "float32", **compiled: object) -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(7, "relu", dtype=dtype), keras.layers.Dense(3, "softmax", dtype=dtype)]
    model = keras.Sequential([keras.Input([5]), *layers])
    model.compile(optimizer, "sparse_categorical_crossentropy", **compiled)
    return model


def trained(
    model: keras.Model, context: Callable[[keras.Model], contextlib.AbstractContextManager[None]],
    data: tuple = (X, Y),
) -> tuple[list[np.ndarray], set[str]]:  # fmt: skip
    """The weights after six steps that were traced in ``context``, and the kinds of their operations."""
    model.optimizer.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step(x: tf.Tensor, y: tf.Tensor) -> object:
        with context(model):
            return model.train_step((x, y))

    x, y = map(tf.constant, data)
    for _ in range(6):
        step(x, y)
    graph = step.get_concrete_function(x, y).graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    return [v.numpy() for v in model.variables], {node.op for node in nodes}


def fewer(model: keras.Model) -> contextlib.AbstractContextManager[None]:
    return tf_internals.fewer_passes(model, after_all_gradients=True)


def as_keras(model: keras.Model) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


def assert_same_bits(make: Callable[[], keras.Model], data: tuple = (X, Y), atol: float = 0) -> set[str]:
    """Train as Keras does, and with fewer passes; returns the kinds of operations of the latter."""
    expected, _ = trained(make(), as_keras, data)
    weights, operations = trained(make(), fewer, data)
    assert not np.array_equal(weights[0], make().get_weights()[0]), "nothing was trained"
    for mine, theirs in zip(weights, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=atol)
    return operations


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (GRADIENT_DESCENT, {}),
        (MOMENTUM, {"momentum": 0.9}),
        (MOMENTUM, {"momentum": 0.9, "nesterov": True}),
        (GRADIENT_DESCENT, {"weight_decay": 0.01, "clipnorm": 0.1}),
        (MOMENTUM, {"momentum": 0.9, "use_ema": True}),
        (MOMENTUM, {"momentum": 0.9, "gradient_accumulation_steps": 2}),
        (GRADIENT_DESCENT, {"learning_rate": keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5)}),
    ],
    ids=lambda value: str(value).partition("<")[0],
)
def test_sgd_takes_one_kernel_for_a_variable(kernel, options):
    assert kernel in assert_same_bits(lambda: dense(SGD(**{"learning_rate": 0.1} | options)))


def test_a_factor_that_tensorflow_joins_with_the_learning_rate_is_rounded_otherwise():
    def make():
        return dense(SGD(0.1, global_clipnorm=0.1))

    assert GRADIENT_DESCENT in assert_same_bits(make, atol=1e-8)


@pytest.mark.parametrize("dtype", ["float64", "mixed_float16", "mixed_bfloat16"])
def test_sgd_of_other_types_whose_variables_have_full_precision(dtype):
    def make():
        sgd = SGD(0.1, momentum=0.9)
        return dense(keras.optimizers.LossScaleOptimizer(sgd) if dtype == "mixed_float16" else sgd, dtype)

    assert MOMENTUM in assert_same_bits(make)


def test_large_variables_and_those_of_any_length():
    x = rng.normal(size=(16, 333)).astype("float32")

    def make():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input([333]), keras.layers.Dense(1021), keras.layers.Dense(3)])
        model.compile(SGD(0.01, momentum=0.9, nesterov=True), "mse")
        return model

    assert MOMENTUM in assert_same_bits(make, (x, rng.normal(size=(16, 3)).astype("float32")))


@pytest.mark.parametrize(
    "make",
    [
        lambda: dense(keras.optimizers.Adam(0.01)),
        lambda: dense(Slower(0.1)),
        lambda: dense(SGD(0.1), "bfloat16"),
    ],
    ids=["another optimizer", "a subclass", "16-bit variables"],
)
def test_what_has_no_kernel_is_left_to_keras(make):
    assert not {GRADIENT_DESCENT, MOMENTUM} & assert_same_bits(make)


def test_a_step_that_somebody_put_in_the_place_of_keras_s_is_used():
    model = dense(SGD(0.1))
    seen = []
    model.optimizer.update_step = lambda gradient, variable, rate: seen.append(variable.name)
    trained(model, fewer)
    assert len(seen) == 4


def test_sparse_gradients():
    words = rng.integers(0, 50, (16, 4))

    def make():
        keras.utils.set_random_seed(1)
        layers = [keras.layers.Embedding(50, 3), keras.layers.Flatten(), keras.layers.Dense(3, "softmax")]
        model = keras.Sequential([keras.Input([4], dtype="int64"), *layers])
        model.compile(SGD(0.1), "sparse_categorical_crossentropy")
        return model

    # The embedding is changed by Keras's operation, the dense layer by the kernel.
    assert {"ResourceScatterSub", GRADIENT_DESCENT} <= assert_same_bits(make, (words, Y))


def test_no_weight_changes_before_all_gradients_are_there():
    def waits(after_all: bool) -> int:
        """How many of the four weights wait for the gradients of all."""
        model = dense(SGD(0.1))
        model.optimizer.build(model.trainable_variables)

        @tf.function(autograph=False)
        def step() -> object:
            with tf_internals.fewer_passes(model, after_all_gradients=after_all):
                return model.train_step((X, Y))

        operations = step.get_concrete_function().graph.get_operations()
        products = [products_before(op.inputs[2]) for op in operations if op.type == GRADIENT_DESCENT]
        assert len(products) == 4
        return sum(found == set().union(*products) for found in products)

    assert waits(True) == 4
    assert waits(False) < 4


def products_before(tensor: tf.Tensor) -> set[str]:
    """The matrix products without which ``tensor`` cannot be had."""
    found, todo = set(), [tensor]
    while todo:
        tensor = todo.pop()
        if tensor.op.type == "IdentityN":  # which TensorFlow takes apart
            todo.append(tensor.op.inputs[tensor.value_index])
        elif tensor.op not in found:
            found.add(tensor.op)
            todo += [*tensor.op.inputs, *(gated for op in tensor.op.control_inputs for gated in gates(op))]
    return {op.name for op in found if op.type == "MatMul"}


def gates(op: tf.Operation) -> list[tf.Tensor]:
    """Tensors of the operations that must have run before ``op``, which has no outputs; its own if it has."""
    return list(op.outputs) or [tensor for before in op.control_inputs for tensor in gates(before)]


def test_gradients_that_are_all_missing_are_keras_s_error():
    model = dense(SGD(0.1))
    model.optimizer.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step() -> None:
        with fewer(model):
            model.optimizer.apply([None] * 4, model.trainable_variables)

    with pytest.raises(ValueError, match="No gradients provided for any variable"):
        step()


def test_nothing_is_left_on_the_optimizer():
    model = dense(SGD(0.1))
    before = set(vars(model.optimizer))
    with fewer(model):
        assert {"apply", "update_step"} <= set(vars(model.optimizer)) - before
    assert set(vars(model.optimizer)) == before


def test_xla_makes_one_kernel_by_itself():
    assert not {GRADIENT_DESCENT} & assert_same_bits(lambda: dense(SGD(0.1), jit_compile=True))
