"""Labels that are text, and losses."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdistr
from tfdistr.errors import ArgumentError
from tfdistr.training.job_data import check_labels

X = np.random.default_rng(0).normal(size=(12, 3)).astype("float32")
TEXT = np.array(["setosa", "virginica"] * 6)
SPEC = (tf.TensorSpec([None, 3]), tf.TensorSpec([None], tf.string))


class OfText(keras.losses.Loss):
    """The length of a text is its number."""

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
        numbers = tf.cast(tf.strings.length(y_true), "float32")
        return keras.ops.mean((numbers[:, None] - y_pred) ** 2)


def own_loss(y: Any, predicted: Any) -> Any:
    return keras.ops.mean(predicted - y)


def compiled(loss: Any, kind: type = keras.Sequential, outputs: int = 1) -> keras.Model:
    made = kind([keras.layers.Dense(outputs)])
    made.compile("sgd", loss)
    return made


class OwnStep(keras.Sequential):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


@pytest.mark.parametrize(
    "loss",
    [
        "mse",
        keras.losses.mean_squared_error,
        {"a": "mse"},
        own_loss,
    ],
)
def test_a_loss_of_compile_needs_numbers(loss):
    with pytest.raises(ArgumentError, match="The labels must be numbers"):
        check_labels(compiled(loss), SPEC)


@pytest.mark.parametrize(
    ("model", "spec"),
    [
        (compiled(OfText()), SPEC),
        (compiled("mse", OwnStep), SPEC),
        (compiled(None), SPEC),
        (compiled("mse"), (SPEC[1], SPEC[0])),
        (compiled("mse"), SPEC[:1]),
        (compiled("mse"), SPEC[1]),
    ],
    ids=["own __call__", "own step", "no loss", "text as inputs", "no labels", "no tuple"],
)
def test_all_else_is_no_matter_of_labels(model, spec):
    check_labels(model, spec)


@pytest.mark.parametrize("names", [("kind", "sizes"), ("kind",)])
def test_labels_by_name_have_the_names_of_the_outputs(names):
    x = keras.Input((3,))
    model = keras.Model(x, [keras.layers.Dense(1, name=name)(x) for name in ("size", "kind")])
    model.compile("sgd", {"size": "mse", "kind": "mse"})
    check_labels(model, (SPEC[0], dict.fromkeys(("kind", "size"), SPEC[0])))
    with pytest.raises(ArgumentError) as caught:
        check_labels(model, (SPEC[0], dict.fromkeys(names, SPEC[0])))
    received = f"{', '.join(map(repr, names))}, where the outputs are 'size', 'kind'"
    assert str(caught.value).splitlines() == [
        "`y` must have the names of the model's outputs.",
        f"Received: {received}",
        "Fix: Name each target after its output.",
    ]


def test_a_file_with_text_as_its_target_has_classes(tmp_path):
    file = tmp_path / "flowers.csv"
    rows = "\n".join(f"{a},{b},{c},{name}" for (a, b, c), name in zip(X, TEXT, strict=True))
    file.write_text(f"a,b,c,kind\n{rows}\n")
    data = tfdistr.load_dataset("csv", files=file, features=["a", "b", "c"], target="kind")

    def losses(*given: Any) -> Any:
        model = lambda: compiled("sparse_categorical_crossentropy", outputs=2)  # noqa: E731
        return tfdistr.distributed_fit(model, *given, seed=1, verbose=0).history

    assert losses(data) == losses(X, np.unique(TEXT, return_inverse=True)[1])


def test_a_loss_that_takes_text_trains():
    fit = tfdistr.distributed_fit(lambda: compiled(OfText()), X, TEXT, seed=1, verbose=0)
    assert np.isfinite(fit.history["loss"][0])
