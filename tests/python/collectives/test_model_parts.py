"""What workers compare of a model before they make its variables."""

from typing import Any

import keras
import pytest
import tensorflow as tf

from tfdistr.collectives.comparison import describe_parts, describe_types


def described(
    loss: Any = "mse", metrics: Any = None, optimizer: Any = "sgd", units: Any = 3
) -> dict[str, Any]:
    model = keras.Sequential([keras.layers.Dense(units), keras.layers.Rescaling(2.0)])
    model.compile(optimizer, loss, metrics=metrics)
    return describe_parts(model)


def test_the_parts_are_described_by_their_numbers():
    assert described() == {
        "model": "Sequential",
        "layer 0": "Dense(trainable=True, units=3, activation=linear, use_bias=True)",
        "layer 1": "Rescaling(trainable=True, scale=2, offset=0)",
        "optimizer": "SGD(learning_rate=0.01, use_ema=False, ema_momentum=0.99, momentum=0, nesterov=False)",
        "loss": "MeanSquaredError(reduction=sum_over_batch_size)",
        "metrics": "none",
    }


ALIKE = [
    ({"loss": "mse"}, {"loss": "mean_squared_error"}),
    ({"loss": "mse"}, {"loss": keras.losses.mean_squared_error}),
    ({"loss": "mse"}, {"loss": keras.losses.MeanSquaredError(name="other")}),
    ({"loss": "sparse_categorical_crossentropy"}, {"loss": keras.losses.SparseCategoricalCrossentropy()}),
    ({"metrics": ["accuracy"]}, {"metrics": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]}),
    ({"metrics": [lambda y, p: y]}, {"metrics": [lambda y, p: p]}),
    ({"optimizer": "sgd"}, {"optimizer": keras.optimizers.SGD(1e-2)}),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_the_same_part_in_another_form_is_the_same(one, other):
    assert described(**one) == described(**other)


def test_the_input_of_a_model_that_is_built_is_none_of_its_layers():
    layers = [keras.layers.Dense(3), keras.layers.Dense(1)]
    models = [keras.Sequential([*begin, *layers]) for begin in ([], [keras.Input((2,))])]
    for model in models:
        model.compile("sgd", "mse")
    assert describe_parts(models[0]) == describe_parts(models[1])


DIFFERENT = [
    ({"loss": "mse"}, {"loss": "mae"}, "loss"),
    ({"loss": "mse"}, {"loss": None}, "loss"),
    ({"loss": "binary_crossentropy"}, {"loss": keras.losses.BinaryCrossentropy(from_logits=True)}, "loss"),
    ({"metrics": ["accuracy"]}, {"metrics": ["mae"]}, "metrics"),
    ({"metrics": ["accuracy"]}, {"metrics": ["accuracy", "mae"]}, "metrics"),
    ({"optimizer": "sgd"}, {"optimizer": "adam"}, "optimizer"),
    ({"optimizer": "sgd"}, {"optimizer": keras.optimizers.SGD(momentum=0.9)}, "optimizer"),
    ({"units": 3}, {"units": 4}, "layer 0"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "field"), DIFFERENT)
def test_another_part_differs_in_its_field(one, other, field):
    first, second = described(**one), described(**other)
    assert [name for name in first if first[name] != second[name]] == [field]


class OwnLoss(keras.losses.Loss):
    def call(self, y_true: Any, y_pred: Any) -> Any:
        return y_pred - y_true


class OwnCompile(keras.Sequential):
    def compile(self, loss: Any) -> None:
        super().compile("sgd")
        self.loss = loss


@pytest.mark.parametrize("loss", [OwnLoss(), lambda y, p: p - y], ids=["class", "function"])
def test_nothing_is_said_of_a_loss_of_the_user(loss):
    assert described(loss)["loss"] is None


def test_nor_of_what_only_a_compile_of_the_user_understands():
    model = OwnCompile([keras.layers.Dense(1)])
    model.compile("one of mine")
    assert describe_parts(model)["loss"] is None


def test_whole_numbers_have_one_type():
    parts = [tf.data.Dataset.from_tensor_slices(tf.zeros((4, 2), kind)) for kind in (tf.int32, tf.int64)]
    assert {describe_types(dataset.batch(2).element_spec) for dataset in parts} == {"integer[2]"}
    pair = tf.data.Dataset.from_tensor_slices((tf.zeros((4, 2), tf.float16), tf.zeros(4, tf.bool))).batch(2)
    assert describe_types(pair.element_spec) == "float16[2], bool[]"
