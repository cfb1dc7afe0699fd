"""What a job gives back: the history in several forms, and the trained model."""

import hashlib
import json
import sys
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from damages import damages
from slow import few_or_many

from tfdistr.errors import ArgumentError, CheckpointError
from tfdistr.jobs.outcome import epochs_of, rows_of
from tfdistr.jobs.result import FitResult
from tfdistr.jobs.result_files import load_state, load_training, save_training
from tfdistr.training.model_state import LazyModel, ModelState, OptimizerValues
from tfdistr.training.trained_model import Training, input_spec
from tfdistr.utils.tuning import describe_tuning

HISTORY = {"loss": [0.5, 0.25], "accuracy": [0.75, 1.0], "val_loss": [0.6, 0.5]}
X = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")
Y = X.sum(1, keepdims=True)


PARAMS = {"batch_size": 32, "epochs": 5, "initial_epoch": 0, "validation_freq": 1, "seed": 1, "workers": 2}


def compiled_dense() -> keras.Model:
    return compiled(keras.Sequential([keras.layers.Dense(1)]))


def built() -> keras.Model:
    return compiled(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))


def result(**parts) -> FitResult:
    given = {
        "history": HISTORY,
        "params": PARAMS,
        "workers": [{"index": 0}, {"index": 1}],
        "run_dir": "/runs/1",
        "trained": LazyModel(compiled_dense, lambda: ModelState([], OptimizerValues([], None), None)),
    }
    return FitResult(**given | parts)


def test_the_history_as_a_data_frame():
    frame = result().to_frame()
    assert list(frame.columns) == ["epoch", "metric", "value", "data"]
    assert frame.to_numpy().tolist() == [
        [1, "loss", 0.5, "training"],
        [2, "loss", 0.25, "training"],
        [1, "accuracy", 0.75, "training"],
        [2, "accuracy", 1.0, "training"],
        [1, "loss", 0.6, "validation"],
        [2, "loss", 0.5, "validation"],
    ]
    assert frame.to_numpy().tolist() == [list(row) for row in rows_of(result())]


def test_a_metric_with_several_values_has_a_row_for_each():
    fit = result(history={"f1": [[0.5, 0.25], [0.75, 1.0]]})
    values = {(epoch, metric): value for epoch, metric, value, _ in rows_of(fit)}
    assert values == {(1, "f1[0]"): 0.5, (2, "f1[0]"): 0.75, (1, "f1[1]"): 0.25, (2, "f1[1]"): 1.0}
    assert fit.metrics == {"f1": [0.75, 1.0]}
    assert len(fit.plot().axes) == 2


def test_metrics_with_several_values_return_from_a_file(tmp_path):
    history = {"f1": [[0.5, float("inf")], [0.75, 1.0]], "loss": [0.5, 0.25]}
    save_training(Training(history=history, seconds=1.0, communication="ring"), tmp_path)
    assert load_training(tmp_path)["history"] == history


@pytest.mark.parametrize(
    ("first", "frequency", "losses", "validated"),
    [(0, 2, [9.0, 8.0, 7.0, 6.0], [2, 4]), (3, 2, [9.0, 8.0], [4]), (2, (3, 4, 9), [9.0, 8.0, 7.0], [3, 4])],
)
def test_the_history_knows_its_epochs(first, frequency, losses, validated):
    params = PARAMS | {"initial_epoch": first, "validation_freq": frequency}
    fit = result(params=params, history={"loss": losses, "val_loss": [0.5] * len(validated)})
    trained = list(range(first + 1, first + len(losses) + 1))
    assert epochs_of(fit) == {"loss": trained, "val_loss": validated}
    assert [(epoch, data) for epoch, _, _, data in rows_of(fit)] == [
        *((epoch, "training") for epoch in trained),
        *((epoch, "validation") for epoch in validated),
    ]
    assert [line.get_xdata().tolist() for line in fit.plot().axes[0].lines] == [trained, validated]


def test_the_plot_has_a_panel_for_each_metric():
    panels = result().plot().axes
    assert [panel.get_title() for panel in panels] == ["loss", "accuracy"]
    lines = [{line.get_label(): line.get_xydata().tolist() for line in panel.lines} for panel in panels]
    assert lines == [
        {"training": [[1, 0.5], [2, 0.25]], "validation": [[1, 0.6], [2, 0.5]]},
        {"training": [[1, 0.75], [2, 1.0]]},
    ]


@pytest.mark.parametrize(("package", "method"), [("pandas", "to_frame"), ("matplotlib.figure", "plot")])
def test_a_package_that_is_missing_is_named(monkeypatch, package, method):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ArgumentError) as caught:
        getattr(result(), method)()
    assert caught.value.received == f"no {package.partition('.')[0]}"


OF_DATA = {"batch_size": None, "batches_of": "data set", "epochs": 1, "workers": 1}
METRICS = ["  loss: 0.2500", "  accuracy: 1.0000", "  val_loss: 0.5000"]


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        ({"workers": [{"index": 0, "log": "/runs/1/logs/worker-0.log"}, {"index": 1, "log": None}]},
         ["Trained on 2 workers, 2 epochs, global batch 32, seed 1", *METRICS, "Logs: /runs/1/logs"]),
        ({"run_dir": "s3://bucket/run", "workers": [{"index": 0, "log": None}]},
         ["Trained on 2 workers, 2 epochs, global batch 32, seed 1", *METRICS, "Run: s3://bucket/run"]),
        ({"params": PARAMS | OF_DATA, "run_dir": None, "history": {"loss": [0.5]}},
         ["Trained on 1 worker, 1 epoch, batches of the data set, seed 1", "  loss: 0.5000"]),
    ],
)  # fmt: skip
def test_print_shows_what_was_trained_and_where_it_is(parts, lines):
    assert str(result(**parts)).splitlines() == lines


def test_the_model_is_made_once_and_when_it_is_asked_for():
    made = []
    state = ModelState.of(train(built(), X).model, None)

    def make() -> keras.Model:
        made.append(built())
        return made[-1]

    asked = result(trained=LazyModel(make, lambda: state))
    assert made == []
    assert asked.model is asked.model is made[0]
    assert len(made) == 1


class Own(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs):
        return self.dense(inputs["a"] if isinstance(inputs, dict) else inputs)


def compiled(model: keras.Model, optimizer: str | keras.optimizers.Optimizer = "adam") -> keras.Model:
    model.compile(optimizer, "mse")
    return model


def functional() -> keras.Model:
    inputs = {"a": keras.Input((4,), name="a"), "b": keras.Input((4,), name="b")}
    return compiled(keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Add()(list(inputs.values())))))


MODELS = {
    "built": (built, X),
    "unbuilt": (lambda: compiled(keras.Sequential([keras.layers.Dense(3), keras.layers.Dense(1)])), X),
    "subclass": (lambda: compiled(Own()), X),
    "subclass with a dictionary": (lambda: compiled(Own()), {"a": X, "b": X}),
    "dictionary": (functional, {"a": X, "b": X}),
    "normalized": (
        lambda: compiled(keras.Sequential([keras.layers.BatchNormalization(), keras.layers.Dense(1)])),
        X,
    ),
    "bfloat16": (lambda: compiled(keras.Sequential([keras.layers.Dense(1, dtype="bfloat16")])), X),
    "momentum": (
        lambda: compiled(keras.Sequential([keras.layers.Dense(1)]), keras.optimizers.SGD(0.1, momentum=0.9)),
        X,
    ),
    "accumulating": (
        lambda: compiled(
            keras.Sequential([keras.layers.Dense(1)]),
            keras.optimizers.Adam(use_ema=True, gradient_accumulation_steps=2),
        ),
        X,
    ),
}  # fmt: skip


def train(model: keras.Model, x, epochs: int = 2) -> Training:
    data = tf.data.Dataset.from_tensor_slices((x, Y)).batch(8)
    history = model.fit(data, epochs=epochs, shuffle=False, verbose=0).history
    return Training(model=model, history=history, inputs=input_spec(data), seconds=1.5, communication="ring")


@pytest.mark.parametrize("name", MODELS)
def test_the_trained_model_comes_back_and_trains_on_as_it_would_have(name, tmp_path):
    make, x = MODELS[name]
    trained = train(make(), x)
    save_training(trained, tmp_path)
    received = load_state(tmp_path).give(make())
    np.testing.assert_array_equal(received.predict(x, verbose=0), trained.model.predict(x, verbose=0))
    assert load_training(tmp_path).items() >= {
        "history": trained.history, "communication": "ring", "tuning": describe_tuning(), "differences": [],
        "xla": "nothing",
    }.items()  # fmt: skip

    further = train(trained.model, x).history["loss"]
    assert train(received, x).history["loss"] == further
    for mine, theirs in zip(received.get_weights(), trained.model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_every_flipped_bit_and_every_cut_of_a_model_is_refused_and_says_what_is_left(tmp_path):
    trained = train(built(), X)
    save_training(trained, tmp_path)
    file = tmp_path / "model.npz"
    for damaged in [b"", *damages(file.read_bytes(), few_or_many(500, 8000), few_or_many(50, 800))]:
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError) as caught:
            load_state(tmp_path)
        assert caught.value.message == "The file of the trained model is damaged."
        assert caught.value.received.startswith(f"{file}: its SHA-256 is not the one in")
    assert caught.value.fix.endswith("The history of the result is complete.")
    assert load_training(tmp_path)["history"] == trained.history


@pytest.mark.parametrize("shape", ["(8589934592,)", "(4, -1)"])
def test_a_model_with_a_wrong_header_is_refused_before_space_is_allocated(tmp_path, shape):
    """Its checksum is right: somebody has written it."""
    save_training(train(built(), X), tmp_path)
    file, document = tmp_path / "model.npz", tmp_path / "training.json"
    with zipfile.ZipFile(file) as there:
        members = {name: there.read(name) for name in there.namelist()}
    header = members["weight_0.npy"]
    members["weight_0.npy"] = header.replace(b"(4, 1), }".ljust(30), f"{shape}, }}".encode().ljust(30))
    assert members["weight_0.npy"] != header
    with zipfile.ZipFile(file, "w") as changed:
        for name, content in members.items():
            changed.writestr(name, content)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    document.write_text(json.dumps(json.loads(document.read_text()) | {"model": digest}))
    with pytest.raises(CheckpointError, match=r"weight_0\.npy has -?\d+ bytes, says its header"):
        load_state(tmp_path)


def test_the_shapes_of_inputs_are_kept_with_what_is_known_of_them():
    spec = {
        "image": tf.TensorSpec([None, 8, None, 1], tf.uint8),
        "any": tf.TensorSpec(None, tf.float32),
        "pair": (tf.TensorSpec([None], tf.int64), tf.TensorSpec([None, 2], tf.string)),
    }
    generator = tf.data.Dataset.from_generator(
        lambda: iter(()), output_signature=(spec, tf.TensorSpec([None]))
    )
    assert input_spec(generator) == {
        "image": ([1, 8, 1, 1], "uint8"),
        "any": ([1], "float32"),
        "pair": (([1], "int64"), ([1, 2], "string")),
    }
