"""Models that are made from a description: all that Keras has, and nothing that runs what others wrote."""

import copy
import json
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers

from tfdistr.errors import ArgumentError
from tfdistr.training.described_model import describe_model, made_again

RULE = "The description of a model may only name Keras classes, and classes that you have registered."


def small() -> keras.Model:
    model = keras.Sequential([
        keras.Input((8, 8, 1)),
        layers.Conv2D(4, 3, activation="relu", kernel_regularizer="l2",
                      kernel_constraint=keras.constraints.MaxNorm(2.0)),
        layers.BatchNormalization(), layers.Dropout(0.1), layers.Flatten(), layers.Dense(3, "softmax"),
    ])  # fmt: skip
    metrics = ["accuracy", keras.metrics.AUC(), keras.metrics.sparse_categorical_accuracy]
    model.compile("adam", "sparse_categorical_crossentropy", metrics=metrics)
    return model


def with_operations() -> keras.Model:
    x = keras.Input((5,))
    y = layers.Dense(5, activation=keras.activations.gelu)(x)
    z = layers.Add()([x, y]) * 2.0 + keras.ops.sin(y)
    model = keras.Model(x, keras.ops.reshape(z[:, :4], (-1, 4)))
    schedule = keras.optimizers.schedules.CosineDecay(0.1, 10)
    model.compile(keras.optimizers.SGD(schedule), keras.losses.Huber(delta=2.0))
    return model


def recurrent() -> keras.Model:
    x = keras.Input((None,), dtype="int32")
    y = layers.Bidirectional(layers.LSTM(3, return_sequences=True))(layers.Embedding(10, 4)(x))
    z = layers.RNN([layers.GRUCell(3)])(layers.MultiHeadAttention(2, 2)(y, y))
    model = keras.Model(x, [z, layers.LayerNormalization()(z)])
    model.compile("rmsprop", [keras.losses.mean_squared_error, "mae"])
    return model


def of_mixed_precision() -> keras.Model:
    rows = layers.TimeDistributed(layers.Dense(3, dtype="mixed_float16"))
    inner = keras.Sequential([layers.Dense(2, dtype="mixed_float16")])
    model = keras.Sequential([keras.Input((8, 3)), layers.Rescaling(1 / 255), rows, inner])
    model.compile("adamw", "mse")
    return model


@pytest.mark.parametrize("make", [small, with_operations, recurrent, of_mixed_precision])
def test_a_model_of_keras_is_made_again(make):
    model = make()
    text = describe_model(model)
    assert text is not None
    again = made_again(text)
    assert describe_model(again) == text
    again.set_weights(model.get_weights())
    shape = [side or 4 for side in model.input_shape[1:]]
    x = np.random.default_rng(1).integers(0, 9, (2, *shape)).astype(model.inputs[0].dtype)
    outputs = [keras.tree.flatten(each.predict(x, verbose=0)) for each in (model, again)]
    for one, other in zip(*outputs, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_model_with_a_part_of_the_user_is_not_described():
    model = keras.Sequential([keras.Input((3,)), layers.Lambda(keras.ops.sin)])
    assert describe_model(model) is None
    table = layers.StringLookup(vocabulary=["a"])
    assert describe_model(keras.Sequential([keras.Input((1,), dtype="string"), table])) is None


@keras.saving.register_keras_serializable("tests")
class Doubled(layers.Layer):
    """A layer that the user has registered."""

    def call(self, x: Any) -> Any:
        return 2 * x


@keras.saving.register_keras_serializable("tests")
def halved(x: Any) -> Any:
    return x / 2


def test_what_the_user_has_registered_is_taken():
    model = keras.Sequential([keras.Input((3,)), Doubled(), layers.Dense(3, activation=halved)])
    again = made_again(json.dumps(keras.saving.serialize_keras_object(model)))
    assert type(again.layers[0]) is Doubled
    assert again.layers[1].activation is halved


def of_one_layer(layer: dict[str, Any], kwargs: dict[str, Any] | None = None) -> dict[str, Any]:
    """The description of a functional model, a layer of which is this one."""
    x = keras.Input((3,), name="x")
    model = keras.Model(x, layers.Dense(3, name="y")(x), name="model")
    described = copy.deepcopy(keras.saving.serialize_keras_object(model))
    described["config"]["layers"].append({
        "name": "z", "build_config": {"input_shape": [None, 3]}, "registered_name": None,
        "inbound_nodes": [{"args": [], "kwargs": kwargs or {}}], **layer,
    })  # fmt: skip
    return described


def function(module: str, name: str) -> dict[str, Any]:
    return {"module": module, "class_name": "function", "config": name, "registered_name": name}


def shell_command() -> dict[str, Any]:
    """Keras 3.8 calls ``os.system`` when it makes this model, also with safe_mode=True."""
    config = {"name": "z", "trainable": True, "function": function("os", "system"), "arguments": {}}
    layer = {"module": "keras.layers", "class_name": "Lambda", "config": config}
    return of_one_layer(layer, {"inputs": "false"})


def dense(**config: Any) -> dict[str, Any]:
    return of_one_layer({
        "module": "keras.layers", "class_name": "Dense", "config": {"name": "z", "units": 3, **config},
    })  # fmt: skip


def of_class(module: Any, name: Any, **more: Any) -> dict[str, Any]:
    return of_one_layer({"module": module, "class_name": name, "config": {"name": "z"}, **more})


AT = "model.config.layers[2]"
FOREIGN: list[tuple[dict[str, Any], str]] = [
    (shell_command(), f"keras.layers.Lambda at {AT}"),
    (dense(activation=function("os", "system")), f"os.system at {AT}.config.activation"),
    (dense(activation=function("builtins", "exec")),
     f"builtins.exec at {AT}.config.activation"),
    (dense(activation=function("keras.utils", "get_file")),
     f"keras.utils.get_file at {AT}.config.activation"),
    (dense(activation=function("keras.activations", "deserialize")),
     f"keras.activations.deserialize at {AT}.config.activation"),
    (dense(activation={"module": "os", "class_name": "function"}),
     f"os.None at {AT}.config.activation"),
    (dense(activation={"class_name": "__lambda__", "config": {"value": "x"}}),
     f"None.__lambda__ at {AT}.config.activation"),
    (dense(units={"class_name": "__typespec__", "spec_name": "Popen", "module": "subprocess",
                                 "registered_name": None, "config": []}),
     f"subprocess.__typespec__ at {AT}.config.units"),
    (of_class("subprocess", "Popen"), f"subprocess.Popen at {AT}"),
    (of_class("keras.layers", "TFSMLayer"), f"keras.layers.TFSMLayer at {AT}"),
    (of_class("keras.layers", "FlaxLayer"), f"keras.layers.FlaxLayer at {AT}"),
    (of_class("keras.src.layers.core.lambda_layer", "Lambda"),
     f"keras.src.layers.core.lambda_layer.Lambda at {AT}"),
    (of_class("keras.layers", "StringLookup"), f"keras.layers.StringLookup at {AT}"),
    (of_class("keras.utils", "Sequence"), f"keras.utils.Sequence at {AT}"),
    (of_class("keras.no_such", "Dense"), f"keras.no_such.Dense at {AT}"),
    (of_class("mine", "Layer", registered_name="mine>Layer"), f"mine.Layer at {AT}"),
    (of_class(None, "Dense"), f"None.Dense at {AT}"),
    (of_class(["keras"], ["Dense"]), f"['keras'].['Dense'] at {AT}"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("described", "named"), FOREIGN, ids=[named.partition(" ")[0] for _, named in FOREIGN]
)
def test_what_is_no_part_of_a_model_is_refused_before_keras_sees_it(monkeypatch, described, named):
    monkeypatch.setattr(keras.saving, "deserialize_keras_object", None)
    with pytest.raises(ArgumentError) as caught:
        made_again(json.dumps(described))
    assert (caught.value.message, caught.value.received) == (RULE, named)


def test_a_damaged_description_is_refused():
    for text in ("{", "[" * 100_000):
        with pytest.raises(ArgumentError, match="Received: no description: "):
            made_again(text)
