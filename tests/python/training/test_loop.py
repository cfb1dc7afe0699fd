"""The training loop of ``distributed_fit()``: what Keras's ``fit`` gives and calls, step by step."""

import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from resumed import OwnLoop
from slow import mostly_slow

from tfdistr.data.order.context import WorkerContext
from tfdistr.data.pipeline.worker_data import WorkerData, make_data
from tfdistr.data.source import make_source
from tfdistr.errors import ArgumentError, TfdistrWarning
from tfdistr.strategies.exact.nan_inputs import InputWatch
from tfdistr.training import step_blocks as training_steps
from tfdistr.training.fit_by_keras import fit_by_keras
from tfdistr.training.job import EpochRange
from tfdistr.training.job_data import weigh_classes
from tfdistr.training.loop import fit, runs_own_loop
from tfdistr.training.step_blocks import Steps

rng = np.random.default_rng(0)
X = rng.normal(size=(44, 5)).astype("float32")
Y = rng.integers(0, 3, 44)
BATCH = 8  # six batches, the last with four examples


class Recorder(keras.callbacks.Callback):
    """Writes down how it is called."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__()
        self.calls: list[tuple] = []
        self.stop_after = stop_after
        for name in [n for n in dir(keras.callbacks.Callback) if n.startswith("on_")]:
            if "predict" not in name:
                setattr(self, name, self.recorded(name))

    def recorded(self, name):
        def call(*args, logs=None):
            number = [arg for arg in args if isinstance(arg, int)]
            logs = logs or next((arg for arg in args if isinstance(arg, dict)), {})
            self.calls.append((name, *number, {key: round(float(v), 5) for key, v in logs.items()}))
            if name == "on_train_batch_end" and number[0] == self.stop_after:
                self.model.stop_training = True

        return call


class Epochs(keras.callbacks.Callback):
    """Wants nothing of batches."""

    def on_epoch_end(self, epoch, logs=None):
        self.seen = [*getattr(self, "seen", []), epoch]


class OwnStep(keras.Model):
    """Has a step and logs of its own."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(3, activation="softmax")

    def call(self, x):
        return self.dense(x)

    def train_step(self, data):
        return {"own": super().train_step(data)["loss"] * 2}


def make(kind: str = "plain", **compiled) -> keras.Model:
    keras.utils.set_random_seed(3)
    if kind == "own step":
        model = OwnStep()
    else:
        layers = {
            "plain": [],
            "dropout": [keras.layers.Dropout(0.3, seed=1)],
            "pooling": [keras.layers.Reshape((5, 1)), keras.layers.Conv1D(2, 2), keras.layers.MaxPooling1D(),
                        keras.layers.Flatten()],
        }  # fmt: skip
        model = keras.Sequential([*layers[kind], keras.layers.Dense(3, activation="softmax")])
    metrics = ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(2)]
    settings = {"optimizer": "adam", "loss": "sparse_categorical_crossentropy", "metrics": metrics}
    model.compile(**settings | compiled)
    return model


def batches(known: bool = True, repeats: bool = True) -> WorkerData:
    dataset = tf.data.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
    if not known:
        return WorkerData(dataset.filter(lambda x, y: True), None)
    return WorkerData(dataset.repeat() if repeats else dataset, 6)


def trained(by, kind="plain", known=True, validates=True, stop_after=None, record=True, **compiled):
    model = make(kind, **compiled)
    recorder = Recorder(stop_after) if record else Epochs()
    steps: list[int] = []
    data = batches(known, repeats=by is fit)
    history = by(
        model, data, epochs=EpochRange(3), validation=data if validates else None, callbacks=[recorder],
        on_steps=lambda done, logs: steps.append(done),
    )  # fmt: skip
    return history, model.get_weights(), recorder, steps


# Slow: trains each model twice.
@pytest.mark.parametrize(
    "options",
    mostly_slow([{"kind": "dropout"}, {"kind": "pooling"}, {"kind": "own step"}, {"validates": False},
     {"steps_per_execution": 3}, {"run_eagerly": True}, {"stop_after": 2},
     {"known": False, "steps_per_execution": 2},
     # At the end of such data, Keras's step fails for want of a batch, but has counted on in Adam's state.
     {"known": False, "optimizer": "sgd"}],
     quick=[{"kind": "own step"}, {"known": False, "optimizer": "sgd"}]),
    ids=str,
)  # fmt: skip
def test_it_gives_what_keras_gives_and_calls_what_keras_calls(options):
    history, weights, recorder, steps = trained(fit, **options)
    expected, keras_weights, keras_recorder, keras_steps = trained(fit_by_keras, **options)
    assert history.keys() == expected.keys()
    for name, values in history.items():
        np.testing.assert_allclose(values, expected[name], rtol=1e-6)
    for mine, other in zip(weights, keras_weights, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-7)
    assert recorder.calls == keras_recorder.calls
    assert steps == keras_steps


@pytest.mark.parametrize("options", [{}, {"run_eagerly": True}])
def test_missing_values_of_inputs_are_named_once(options):
    inputs = {"known": X, "gaps": np.where(np.arange(44)[:, np.newaxis] == 20, np.nan, X).astype("float32")}
    dataset = tf.data.Dataset.from_tensor_slices((inputs, Y)).batch(BATCH).repeat()
    given = {name: keras.Input((5,), name=name) for name in inputs}
    model = keras.Model(given, keras.layers.Dense(3)(given["known"]))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TfdistrWarning)
        epochs = EpochRange(2)
        history = fit(model, WorkerData(dataset, 6), epochs=epochs, validation=None, callbacks=[],
                      on_steps=lambda done, logs: None)  # fmt: skip
    assert np.isfinite(history["loss"]).all()
    (said,) = [str(one.message) for one in caught if isinstance(one.message, TfdistrWarning)]
    assert said.startswith("The inputs have missing values (NaN): x['gaps'] (step 3). The loss need not")


def test_a_loop_over_arrays_makes_no_dataset():
    data = make_data(make_source(X, Y), WorkerContext(1, 0, BATCH))
    fit(make(), data, epochs=EpochRange(1), validation=data, callbacks=[], on_steps=lambda done, logs: None)
    assert "dataset" not in vars(data)


def test_without_callbacks_for_batches_many_steps_go_in_one_call(monkeypatch):
    monkeypatch.setattr(training_steps, "CALL_SECONDS", 1e9)
    history, weights, epochs, steps = trained(fit, record=False)
    expected, keras_weights, _, keras_steps = trained(fit_by_keras, record=False)
    assert history["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    for mine, other in zip(weights, keras_weights, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-7)
    assert epochs.seen == [0, 1, 2]
    assert keras_steps == [1, 2, 3, 4, 5, 6] * 3
    assert steps == [1, 3, 6, 4, 6, 6]


@pytest.mark.parametrize("gathered", [1 << 24, 0], ids=["by index", "pipeline"])
@pytest.mark.parametrize("options", [{}, {"steps_per_execution": 4}], ids=str)
def test_arrays_and_pipelines_give_the_same(monkeypatch, gathered, options):
    monkeypatch.setattr(training_steps, "GATHERED_BYTES", gathered)
    context = WorkerContext(1, 0, BATCH, seed=5, shuffle=True)
    data = make_data(make_source({"a": X, "b": X[:, :2]}, Y), context)
    assert data.arrays is not None
    recorder = Recorder()
    results = []
    for by in (fit, fit_by_keras):
        inputs = [keras.Input((5,), name="a"), keras.Input((2,), name="b")]
        keras.utils.set_random_seed(3)
        outputs = keras.layers.Dense(3, activation="softmax")(keras.layers.Concatenate()(inputs))
        model = keras.Model({"a": inputs[0], "b": inputs[1]}, outputs)
        model.compile("sgd", "sparse_categorical_crossentropy", **(options if by is fit else {}))
        history = by(
            model, data, epochs=EpochRange(2), validation=data, callbacks=[recorder], on_steps=lambda *_: None
        )
        results.append([history["loss"], history["val_loss"], *model.get_weights()])
    for mine, other in zip(*results, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6)
    ends = [call[1] for call in recorder.calls if call[0] == "on_train_batch_end"]
    assert ends[:12] == [0, 1, 2, 3, 4, 5] * 2 if not options else ends[:4] == [3, 5] * 2


@pytest.mark.parametrize(("kind", "inline"), [("plain", True), ("pooling", False)])
def test_steps_with_the_gradient_of_a_pooling_stay_a_function(kind, inline):
    data = make_data(make_source(X, Y), WorkerContext(1, 0, BATCH, seed=5, shuffle=True))
    model = make(kind)
    steps = Steps(model, model.train_step, data)
    steps.run(2)
    graph = steps._loops.over_stack.get_concrete_function().graph.as_graph_def()
    (loop,) = [node for node in graph.node if node.op == "While"]
    assert loop.attr["_lower_using_switch_merge"].b == inline


def test_calls_that_take_long_become_shorter(monkeypatch):
    monkeypatch.setattr(training_steps, "CALL_SECONDS", 1e9)
    model = make()
    data = batches()
    steps = Steps(model, model.train_step, data)
    for count in (1, 2, 4):
        assert steps.pace == count
        steps.run(count)
    assert steps.pace == 8
    monkeypatch.setattr(training_steps, "CALL_SECONDS", 0.0)
    steps.run(8)
    assert steps.pace == 4
    steps.run(1)
    assert steps.pace == 4


def test_a_model_with_a_loop_of_its_own_keeps_it():
    assert runs_own_loop(make())
    assert not runs_own_loop(OwnLoop([keras.layers.Dense(1)]))
    changed = make()
    changed.fit = lambda *args, **kwargs: None
    assert not runs_own_loop(changed)


@pytest.mark.parametrize(
    "targets",
    [Y, Y[:, np.newaxis], Y.astype("float32"), np.eye(3, dtype="float32")[Y], (Y > 0)[:, np.newaxis]],
    ids=["numbers", "column", "floats", "one-hot", "booleans"],
)
def test_each_example_weighs_as_its_class(targets):
    weights = {0: 0.5, 1: 3.0}
    dataset = tf.data.Dataset.from_tensor_slices((X, targets)).batch(BATCH)
    weigh = weigh_classes(weights, dataset.element_spec)
    found = np.concatenate([weight for _, _, weight in dataset.map(lambda *batch: weigh(batch))])
    classes = (Y > 0).astype(int) if targets.dtype == bool else Y
    np.testing.assert_allclose(found, [weights.get(int(number), 1.0) for number in classes])


def test_class_weights_need_one_target_and_no_other_weights():
    pairs = tf.data.Dataset.from_tensor_slices((X, (Y, Y))).batch(BATCH)
    weighted = tf.data.Dataset.from_tensor_slices((X, Y, Y)).batch(BATCH)
    alone = tf.data.Dataset.from_tensor_slices((X,)).batch(BATCH)
    for dataset in (pairs, weighted, alone):
        with pytest.raises(ArgumentError, match=r"`class_weight` is for data \(x, y\) with one") as caught:
            weigh_classes({0: 1.0}, dataset.element_spec)
        assert caught.value.received == f"batches of {dataset.element_spec}"


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("wrap", [lambda see: see, tf.function], ids=["eagerly", "in a graph"])
def test_infinite_values_are_not_missing(dtype, wrap):
    watch = InputWatch()
    see = wrap(watch.see)
    both = np.array([np.inf, 1.0, -np.inf], dtype)
    see({"known": tf.constant(both), "gaps": tf.constant(both)})
    assert watch.describe() == ""
    see({"known": tf.constant(both), "gaps": tf.constant([*both[:2], np.nan], dtype)})
    assert watch.describe() == "x['gaps'] (step 2)"
