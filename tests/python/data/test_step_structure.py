"""The structure of the data that reaches the steps of a model: the same as in Keras's own methods."""

from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdistr

pytestmark = pytest.mark.timeout(240)

X, Y, WEIGHT = np.ones((16, 2), "float32"), np.zeros(16, "float32"), np.ones(16, "float32")
JOB = {"batch_size": 4, "seed": 1, "verbose": 0}
XS: dict[str, Any] = {
    "array": X,
    "dict": {"b": X, "a": X},
    "list": [X, X[:, :1]],
    "tuple": (X, X),
    "list of one": [X],
    "nested": {"a": [X, {"c": X}]},
}
REST: dict[str, tuple[Any, ...]] = {
    "x": (),
    "x, y": (Y,),
    "x, y, weight": (Y, WEIGHT),
    "x, targets": ({"v": Y, "u": Y},),
    "x, targets, weight": ([Y, Y], WEIGHT),
    "x, targets, weights": ({"v": Y, "u": Y}, {"v": WEIGHT, "u": WEIGHT}),
}


def structure(data: Any) -> Any:
    """The nesting of data, and the numbers of dimensions of its arrays."""
    if isinstance(data, dict):
        return {name: structure(part) for name, part in data.items()}
    if isinstance(data, tuple | list):
        return [type(data).__name__, *map(structure, data)]
    return data.shape.rank


#: The structure of the data of each kind of step.
RECORDED: dict[str, Any] = {}


class Recording(keras.Model):
    """Records the structure of the data of each kind of step."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.dense.build((None, 2))
        self.built = True

    def call(self, inputs: Any) -> Any:
        return self.dense(tf.nest.flatten(inputs)[0])

    def train_step(self, data: Any) -> Any:
        RECORDED["train"] = structure(data)
        weights = self.trainable_variables
        self.optimizer.apply_gradients([(tf.zeros(weight.shape), weight) for weight in weights])
        return {"loss": tf.zeros([])}

    def test_step(self, data: Any) -> Any:
        RECORDED["test"] = structure(data)
        return {"loss": tf.zeros([])}

    def predict_step(self, data: Any) -> Any:
        RECORDED["predict"] = structure(data)
        return tf.zeros([tf.shape(tf.nest.flatten(data)[0])[0], 1])


def recording() -> keras.Model:
    made = Recording()
    made.compile("sgd")
    return made


def recorded() -> dict[str, Any]:
    """What was recorded since the last call."""
    found = RECORDED.copy()
    RECORDED.clear()
    return found


def named(rest: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("y", "sample_weight"), rest, strict=False))


def of_keras(x: Any, rest: tuple[Any, ...] = (), **validation: Any) -> dict[str, Any]:
    recording().fit(x, **named(rest), batch_size=4, verbose=0, **validation)
    return recorded()


def fit_of(x: Any, rest: tuple[Any, ...] = (), **how: Any) -> tfdistr.FitResult:
    return tfdistr.distributed_fit(recording, x, **named(rest), **JOB, **how)


@pytest.mark.parametrize(("x", "rest"), [*((x, "x, y") for x in XS), *(("dict", rest) for rest in REST)])
def test_a_step_gets_what_keras_gives(x, rest):
    validation = {"validation_data": (XS[x], *REST[rest])}
    expected = of_keras(XS[x], REST[rest], **validation)
    assert expected.keys() == {"train", "test"}
    fit_of(XS[x], REST[rest], **validation)
    assert recorded() == expected


def test_validation_split_and_x_alone_as_validation_data():
    for validation in ({"validation_split": 0.5}, {"validation_data": X}, {"validation_data": (X,)}):
        expected = of_keras(X, **validation)
        fit_of(X, **validation)
        assert recorded() == expected == {"train": 2, "test": 2}


@pytest.mark.parametrize("x", XS)
def test_evaluate_and_predict_get_what_keras_gives(x):
    model = recording()
    model.evaluate(XS[x], verbose=0)
    model.predict(XS[x], verbose=0)
    expected = recorded()
    fit = fit_of(XS[x])
    recorded()
    fit.evaluate(XS[x])
    assert fit.predict(XS[x]).shape == (16, 1)
    assert recorded() == expected


def test_a_step_of_ones_own_predicts_from_whole_batches_of_a_dataset():
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    recording().predict(batches, verbose=0)
    expected = recorded()
    fit = fit_of(X)
    recorded()
    fit.predict(batches, batch_size=None)
    assert recorded() == expected == {"predict": ["tuple", 2, 1]}


@pytest.mark.parametrize(
    ("content", "expected"),
    [("a,b\n" + "1,2\n" * 8, 2), ("a,b\n" + "1,u\n" * 8, {"a": 1, "b": 1})],
)
def test_a_data_set_in_files_without_targets(tmp_path, content, expected):
    path = tmp_path / "data.csv"
    path.write_text(content)
    data = tfdistr.load_dataset("csv", files=str(path))
    fit_of(data, validation_data=data).predict(data)
    assert recorded() == dict.fromkeys(("train", "test", "predict"), expected)


class Slices(keras.utils.PyDataset):
    """Four times the same batch."""

    def __init__(self, batch: Any) -> None:
        super().__init__()
        self.batch = batch

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> Any:
        return self.batch


BATCHES = {"array": X, "dict": {"a": X}, "x alone": (X,), "pair": (X, Y), "inputs": ((X, X),), "list": [X, Y]}


def generator_of(batch: Any) -> Callable[[], Iterator[Any]]:
    return lambda: (part for part in [batch] * 2)  # Keras refuses other iterators


@pytest.mark.parametrize(
    ("make", "batch"),
    [
        *((Slices, name) for name in BATCHES),
        *((generator_of, name) for name in ("x alone", "pair", "inputs")),
    ],
)
def test_objects_of_batches(make, batch):
    data = make(BATCHES[batch])
    expected = of_keras(data if isinstance(data, Slices) else data())
    tfdistr.distributed_fit(recording, data, verbose=0)
    assert recorded() == expected


def test_a_generator_of_arrays_which_keras_refuses():
    tfdistr.distributed_fit(recording, lambda: iter([X, X]), verbose=0)
    assert recorded() == {"train": 2}
