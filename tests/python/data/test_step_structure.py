"""The structure of the data that reaches the steps of a model: the same as in Keras's own methods."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
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
    """Data as JSON: its nesting, and the numbers of dimensions of its arrays."""
    if isinstance(data, dict):
        return {name: structure(part) for name, part in data.items()}
    if isinstance(data, tuple | list):
        return [type(data).__name__, *map(structure, data)]
    return data.shape.rank


class Recording(keras.Model):
    """Writes the structure of the data of each kind of step into a folder, in a file for each process."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.dense, self.folder = keras.layers.Dense(1), folder
        self.dense.build((None, 2))
        self.built = True

    def call(self, inputs: Any) -> Any:
        return self.dense(tf.nest.flatten(inputs)[0])

    def record(self, kind: str, data: Any) -> None:
        Path(self.folder, f"{kind}-{os.getpid()}").write_text(json.dumps(structure(data)))

    def train_step(self, data: Any) -> Any:
        self.record("train", data)
        weights = self.trainable_variables
        self.optimizer.apply_gradients([(tf.zeros(weight.shape), weight) for weight in weights])
        return {"loss": tf.zeros([])}

    def test_step(self, data: Any) -> Any:
        self.record("test", data)
        return {"loss": tf.zeros([])}

    def predict_step(self, data: Any) -> Any:
        self.record("predict", data)
        return tf.zeros([tf.shape(tf.nest.flatten(data)[0])[0], 1])


def recorder(folder: Path) -> Callable[[], keras.Model]:
    path = str(folder)

    def model() -> keras.Model:
        made = Recording(path)
        made.compile("sgd")
        return made

    return model


def recorded(folder: Path) -> dict[str, Any]:
    """The structures by the kind of the step; all processes have the same."""
    found: dict[str, list[Any]] = {}
    for path in folder.iterdir():
        found.setdefault(path.name.partition("-")[0], []).append(json.loads(path.read_text()))
    assert all(each == of_kind[0] for of_kind in found.values() for each in of_kind)
    for path in folder.iterdir():
        path.unlink()
    return {kind: of_kind[0] for kind, of_kind in found.items()}


def of_keras(folder: Path, x: Any, rest: tuple[Any, ...] = (), **validation: Any) -> dict[str, Any]:
    names = dict(zip(("y", "sample_weight"), rest, strict=False))
    recorder(folder)().fit(x, **names, batch_size=4, verbose=0, **validation)
    return recorded(folder)


def fit_of(folder: Path, x: Any, rest: tuple[Any, ...] = (), **how: Any) -> tfdistr.FitResult:
    names = dict(zip(("y", "sample_weight"), rest, strict=False))
    return tfdistr.distributed_fit(recorder(folder), x, **names, **JOB, **how)


@pytest.mark.parametrize(("x", "rest"), [*((x, "x, y") for x in XS), *(("dict", rest) for rest in REST)])
def test_a_step_gets_what_keras_gives(tmp_path, x, rest):
    validation = {"validation_data": (XS[x], *REST[rest])}
    expected = of_keras(tmp_path, XS[x], REST[rest], **validation)
    assert expected.keys() == {"train", "test"}
    fit_of(tmp_path, XS[x], REST[rest], **validation)
    assert recorded(tmp_path) == expected


def test_validation_split_and_x_alone_as_validation_data(tmp_path):
    for validation in ({"validation_split": 0.5}, {"validation_data": X}, {"validation_data": (X,)}):
        expected = of_keras(tmp_path, X, **validation)
        fit_of(tmp_path, X, **validation)
        assert recorded(tmp_path) == expected == {"train": 2, "test": 2}


@pytest.mark.parametrize("x", XS)
def test_evaluate_and_predict_get_what_keras_gives(tmp_path, x):
    model = recorder(tmp_path)()
    model.evaluate(XS[x], verbose=0)
    model.predict(XS[x], verbose=0)
    expected = recorded(tmp_path)
    fit = fit_of(tmp_path, XS[x])
    recorded(tmp_path)
    fit.evaluate(XS[x])
    assert fit.predict(XS[x]).shape == (16, 1)
    assert recorded(tmp_path) == expected


def test_a_step_of_ones_own_predicts_from_whole_batches_of_a_dataset(tmp_path):
    batches = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)
    recorder(tmp_path)().predict(batches, verbose=0)
    expected = recorded(tmp_path)
    fit = fit_of(tmp_path, X)
    recorded(tmp_path)
    fit.predict(batches, batch_size=None)
    assert recorded(tmp_path) == expected == {"predict": ["tuple", 2, 1]}


@pytest.mark.parametrize(
    ("content", "expected"),
    [("a,b\n" + "1,2\n" * 8, 2), ("a,b\n" + "1,u\n" * 8, {"a": 1, "b": 1})],
)
def test_a_data_set_in_files_without_targets(tmp_path, content, expected):
    path = tmp_path / "data.csv"
    path.write_text(content)
    folder = tmp_path / "recorded"
    folder.mkdir()
    data = tfdistr.load_dataset("csv", files=str(path))
    fit_of(folder, data, validation_data=data).predict(data)
    assert recorded(folder) == dict.fromkeys(("train", "test", "predict"), expected)


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
def test_objects_of_batches(tmp_path, make, batch):
    data = make(BATCHES[batch])
    expected = of_keras(tmp_path, data if isinstance(data, Slices) else data())
    tfdistr.distributed_fit(recorder(tmp_path), data, verbose=0)
    assert recorded(tmp_path) == expected


def test_a_generator_of_arrays_which_keras_refuses(tmp_path):
    tfdistr.distributed_fit(recorder(tmp_path), lambda: iter([X, X]), verbose=0)
    assert recorded(tmp_path) == {"train": 2}
