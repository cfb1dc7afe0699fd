"""Labels that are text, and losses."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from refusals import assert_says

import tfdistr
from tfdistr.errors import ArgumentError
from tfdistr.training.data_checks import check_data, label_errors

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


class OwnCall(keras.Model):
    def call(self, inputs: Any) -> Any:
        return inputs["any"]


def own_call() -> keras.Model:
    made = OwnCall()
    made.compile("sgd", "mse")
    return made


NUMBERS = "The labels must be numbers: Keras casts them to the type of the model's outputs."


@pytest.mark.parametrize(
    ("model", "spec", "said"),
    [
        (compiled("mse"), SPEC, [NUMBERS, "text as labels"]),
        (compiled(keras.losses.mean_squared_error), SPEC, [NUMBERS]),
        (compiled({"a": "mse"}), SPEC, [NUMBERS]),
        (compiled(own_loss), SPEC, [NUMBERS]),
        (compiled(OfText()), SPEC, []),
        (compiled("mse", OwnStep), SPEC, []),
        (compiled(None), SPEC, []),
        (compiled(None), SPEC[:1], []),
        (compiled(None), SPEC[0], []),
        (compiled("mse"), SPEC[:1], ["The loss of the model needs `y`", "examples without targets"]),
        (own_call(), ({"any": SPEC[0], "more": SPEC[1]}, SPEC[0]), []),
        (compiled("mse"), ({"size": SPEC[0], "kind": SPEC[1]}, SPEC[0]),
         ["`x` must have the inputs of the model", "'kind', 'size', where the model takes one array",
          "Fix: Convert the text in 'kind' to numbers"]),
    ],
    ids=["text", "a function", "by name", "own loss", "own __call__", "own step", "no loss", "no labels",
         "no tuple", "no targets", "own inputs", "columns"],
)  # fmt: skip
def test_what_a_model_takes(model, spec, said):
    if not said:
        check_data(model, spec)
        return
    with pytest.raises(ArgumentError) as caught:
        check_data(model, spec)
    assert_says(caught.value, said)


@pytest.mark.parametrize("names", [("kind", "sizes"), ("kind",)])
def test_labels_by_name_have_the_names_of_the_outputs(names):
    x = keras.Input((3,))
    model = keras.Model(x, [keras.layers.Dense(1, name=name)(x) for name in ("size", "kind")])
    model.compile("sgd", {"size": "mse", "kind": "mse"})
    check_data(model, (SPEC[0], dict.fromkeys(("kind", "size"), SPEC[0])))
    check_data(model, (SPEC[0], (SPEC[0], SPEC[0])))
    with pytest.raises(ArgumentError, match="1 targets without names"):
        check_data(model, (SPEC[0], SPEC[0]))
    with pytest.raises(ArgumentError) as caught:
        check_data(model, (SPEC[0], dict.fromkeys(names, SPEC[0])))
    received = f"{', '.join(map(repr, names))}, where the outputs are 'size', 'kind'"
    assert str(caught.value).splitlines() == [
        "`y` must have the names of the model's outputs.",
        f"Received: {received}",
        "Fix: Name each target after its output.",
    ]


TWO = [keras.Input((3,), name=name) for name in ("b", "a")]
SUM = keras.layers.Add()(TWO)
BY_NAME = {"b": SPEC[0], "a": SPEC[0]}
NAMED = dict(zip("ba", TWO, strict=True))


@pytest.mark.parametrize(
    ("inputs", "x", "received"),
    [
        (TWO, BY_NAME, None),
        (TWO, {**BY_NAME, "more": SPEC[0]}, None),
        (TWO, (SPEC[0], SPEC[0]), None),
        (TWO, (SPEC[0],), "1 arrays, where the model takes 'b', 'a'"),
        (TWO, {"b": SPEC[0], "c": SPEC[0]}, "'b', 'c', where the model takes 'b', 'a'"),
        (NAMED, dict(sorted(BY_NAME.items())), None),
        # Keras would take the first two in the order of the names.
        (NAMED, {**BY_NAME, "A": SPEC[0]}, "'A', 'a', 'b', where the model takes 'b', 'a'"),
        (NAMED, (SPEC[0], SPEC[0]), "2 arrays, where the model takes 'b', 'a'"),
    ],
)  # fmt: skip
def test_inputs_are_those_of_the_model(inputs, x, received):
    model = keras.Model(inputs, SUM)
    model.compile("sgd", "mse")
    if received is None:
        check_data(model, (x, SPEC[0]))
    else:
        with pytest.raises(ArgumentError, match="`x` must have the inputs of the model") as caught:
            check_data(model, (x, SPEC[0]))
        assert caught.value.received == received


@pytest.mark.parametrize("x", [SPEC[1], {"kind": SPEC[1]}], ids=["array", "column"])
def test_text_is_refused_where_a_model_takes_numbers(x):
    with pytest.raises(ArgumentError, match="`x` must have the inputs of the model") as caught:
        check_data(compiled("mse"), (x, SPEC[0]))
    assert caught.value.received == "text, where the model takes one array"
    name = "kind" if isinstance(x, dict) else "x"
    assert caught.value.fix == f"Convert the text in '{name}' to numbers, or give the model an input of text."
    text = keras.Input((1,), dtype="string", name="kind")
    of_text = keras.Model(text, keras.layers.StringLookup(vocabulary=["a"])(text))
    of_text.compile("sgd", "mse")
    check_data(of_text, (x, SPEC[0]))


@pytest.mark.parametrize("task", ["fit", "evaluate"])
def test_a_label_that_is_no_class_is_named(task):
    model = compiled("sparse_categorical_crossentropy", outputs=3)
    data = {"x": X, "y": np.tile([0, 2], 6)}
    if task == "evaluate":
        model = tfdistr.distributed_fit(model, **data, seed=1, verbose=0)
    data["y"][5] = 3
    with pytest.raises(ArgumentError, match="The labels must be the numbers of classes, from 0") as caught:
        tfdistr.distributed_fit(model, **data, verbose=0) if task == "fit" else model.evaluate(**data)
    assert caught.value.received == "the label 3, where the model has 3 outputs"


def test_other_errors_of_tensorflow_pass():
    with pytest.raises(tf.errors.InvalidArgumentError, match="another"), label_errors():
        raise tf.errors.InvalidArgumentError(None, None, "another")


def test_a_given_model_is_checked_before_workers_start(monkeypatch):
    monkeypatch.setattr("tfdistr.jobs.run.fit_on_cluster", lambda *given: pytest.fail("workers started"))
    model = keras.Model(TWO, SUM)
    model.compile("sgd", "mse")
    with pytest.raises(ArgumentError, match="`x` must have the inputs of the model"):
        tfdistr.distributed_fit(model, {"a": X, "c": X}, X, cluster=tfdistr.local_cluster(2))


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        (X, "`validation_data` must have targets, as `x` has."),
        (({"a": X[:, 0], "b": TEXT}, X[:, 0]), "`validation_data` must have the parts of `x`."),
        ((X, (X, X)), "`validation_data` must have the parts of `y`."),
    ],
)
def test_validation_data_has_the_parts_of_the_training(given, rule):
    with pytest.raises(ArgumentError) as caught:
        tfdistr.distributed_fit(pytest.fail, X, X[:, 0], validation_data=given, verbose=0)
    assert caught.value.message == rule


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
