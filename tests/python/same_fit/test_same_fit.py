"""The comparison of fits without workers: what differs, which reason is found, what a model does in a step.

``tests/python/test_testing.py`` trains on workers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdistr.same_fit import reasons
from tfdistr.same_fit.difference import Difference, Pair, find_difference
from tfdistr.same_fit.parts import Parts, find_parts
from tfdistr.same_fit.plan import plan_same_fit
from tfdistr.same_fit.probe import ADDED, DRAWS, ROWS, SUM, probed
from tfdistr.same_fit.study import Experiment, Study, distance


@dataclass
class Fit:
    """What a comparison reads of a result."""

    weights: list[Any]
    history: dict[str, list[float]]
    optimizer: list[Any] = field(default_factory=lambda: [np.zeros(2)])
    first: int = 1

    @property
    def model(self) -> Any:
        named = [SimpleNamespace(path=f"layer/{number}") for number in range(len(self.weights))]
        optimizer = SimpleNamespace(variables=[SimpleNamespace(path="m")])
        return SimpleNamespace(weights=named, optimizer=optimizer)

    @property
    def _trained(self) -> Any:
        return SimpleNamespace(state=lambda: self)

    @property
    def params(self) -> dict[str, int]:
        return {"initial_epoch": self.first - 1, "validation_freq": 1}


def compared(one: Fit, two: Fit, outputs: Any = (0.0, 0.0), tolerance: float = 1e-6) -> Difference | None:
    return find_difference([one, two], [np.array(values) for values in outputs], [1, 2], tolerance)


def test_the_same_within_the_tolerance():
    one = Fit([np.array([1.0, 100.0])], {"loss": [0.5]})
    assert compared(one, Fit([np.array([1.0, 100.00005])], {"loss": [0.5]})) is None  # relative above 1
    assert compared(one, Fit([np.array([1.0, 100.0])], {"loss": [0.5]}), ([1.0], [1.000009])) is None
    assert compared(one, Fit([np.array([1.0, np.nextafter(100.0, 101.0)])], {"loss": [0.5]}), tolerance=0.0)
    assert compared(one, Fit([np.array([1.0, 100.0])], {"loss": [0.5]}), tolerance=0.0) is None


def test_the_first_difference_and_the_epoch_are_named():
    same = np.zeros(3)
    one = Fit([same, np.array([[1.0, 2.0], [3.0, 4.0]])], {"loss": [0.5, 0.25], "mae": [0.5, 0.5]}, first=4)
    two = Fit([same, np.array([[1.0, 2.0], [3.5, 4.0]])], {"loss": [0.5, 0.75], "mae": [0.5, 0.5]}, first=4)
    assert str(compared(one, two, ([1.0], [1.5]))) == (
        "The fits on 1 and 2 workers differ by more than tolerance=1e-06, and the outputs by 1e-05.\n"
        'First difference: the weight "layer/1", by 0.5 (0.12 of its largest value) at [1, 0], counted '
        "from 0: 3 and 3.5\n"
        "Different: 1 of 2 weights, 0 of 1 variables of the optimizer, 1 of 2 metrics of the history, 1 of 1 "
        "outputs\n"
        'History: it parts in epoch 5: the metric "loss" is 0.25 and 0.75'
    )


@pytest.mark.parametrize(
    ("second", "text"),
    [
        ([0.0, np.nan], "by inf at [1], counted from 0: 0 and nan"),
        ([0.0, -0.5], "by 0.5 at [1], counted from 0: 0 and -0.5"),
        ([0.0], "its shape is [2] and [1]"),
        (None, "it exists in one of the fits only"),
    ],
)
def test_how_arrays_differ(second, text):
    pair = Pair("weight", "w", np.zeros(2), None if second is None else np.array(second), 1e-6)
    assert pair.differs
    assert str(pair) == text


@pytest.mark.parametrize(
    ("one", "two", "text"),
    [
        ({"loss": [0.5, 0.5]}, {"loss": [0.5]}, 'in epoch 2 only one of the fits has the metric "loss"'),
        ({"loss": [0.5]}, {"loss": [0.5]}, "it is the same in all epochs"),
        ({"loss": [np.nan]}, {"loss": [np.nan]}, "it is the same in all epochs"),
    ],
)
def test_where_the_history_parts(one, two, text):
    found = compared(Fit([np.zeros(1)], one), Fit([np.ones(1)], two))
    assert str(found).splitlines()[-1] == f"History: {text}"


def pairs(weight: float = 0.5, history: float = 0.5, output: float = 0.5, metric: str = "loss") -> Difference:
    def pair(group: str, name: str, apart: float) -> Pair:
        return Pair(group, name, np.zeros(2), np.full(2, apart), 1e-6)

    of_history = pair("history", f'the metric "{metric}"', history)
    listed = (pair("weight", 'the weight "w"', weight), of_history, pair("output", "output 0", output))
    return Difference((1, 2), listed, 1e-6, "it parts")


def gradients(experiment: Experiment, *, without: set[str], virtual: int | None = None) -> list[Any] | None:
    """The gradients of a model whose parts in ``without`` make them depend on the number of workers."""
    gone = experiment.virtual_workers == virtual if virtual else without <= set(experiment.without)
    return [np.array([1.0, 0.5 if gone or experiment.workers == 1 else 0.1])]


def studied(
    parts: Parts, of: Callable[[Experiment], Any], found: Difference | None = None, **settings: Any
) -> tuple[list[str], int]:
    """What the study says after the first lines, and the number of its experiments."""
    study = Study(found or pairs(), parts, most=2, **settings)
    made = 0
    for experiment in study.experiments():
        experiment.gradients = of(experiment)
        made += 1
    return study.message().splitlines()[4:], made


APART = "Known: the gradients of the first step differ by 0.4 of their largest value."
BITS = "Known: without the part below they are the same bit for bit."
ROUNDING, VIRTUAL = f"Likely reason: {reasons.ROUNDING.text}", f"Likely reason: {reasons.VIRTUAL.text}"


@pytest.mark.parametrize(
    ("parts", "without", "sure", "names"),
    [
        (Parts(silent=("drop",)), {DRAWS}, "Reason", ["drop"]),
        (Parts(normalizing=("norm",)), {ROWS}, "Reason", ["norm"]),
        (Parts(silent=("a", "b"), normalizing=("norm",)), {DRAWS, ROWS}, "Reason", ['a", "b', "norm"]),
        (Parts(adding=("added",)), {ADDED}, "Reason", ["added"]),
        (Parts(), {SUM}, "Reason", ["the loss is a sum"]),
        (Parts(silent=("drop",)), {DRAWS, SUM}, "Reason", ["drop", "the loss is a sum"]),
        (Parts(silent=("drop",)), {"something"}, "Likely reason", ["drop"]),
        (Parts(), {"something"}, "Likely reason", ["a part of the loss"]),
    ],
)
def test_a_reason_is_sure_if_the_gradients_are_the_same_without_it(parts, without, sure, names):
    lines, _ = studied(parts, lambda experiment: gradients(experiment, without=without))
    assert lines[0] == APART
    assert (BITS in lines) == (sure == "Reason")
    found = [line for line in lines if line.startswith(sure)]
    assert len(found) == len(names)
    assert all(name in line for name, line in zip(names, found, strict=True))


def test_gradients_in_the_proportion_of_the_workers_show_a_sum():
    lines, made = studied(Parts(), lambda experiment: [np.array([1.0, 3.0]) / experiment.workers])
    assert lines[1] == "Known: those on 2 workers are 1/2 of those on 1 worker."
    assert lines[2] == f"Reason: {reasons.summed().text}"
    assert made == 3


def test_draws_that_no_mode_silences_are_tried_with_virtual_workers():
    parts = Parts(drawing=("noise",))
    lines, _ = studied(parts, lambda experiment: gradients(experiment, without=set(), virtual=2))
    assert lines[1:3] == [
        "Known: with virtual_workers=2 they are the same bit for bit.",
        f"Reason: {reasons.drawing(['noise']).text}",
    ]
    lines, _ = studied(parts, lambda experiment: gradients(experiment, without={"something"}))
    assert lines[1] == f"Likely reason: {reasons.drawing(['noise']).text}"


def test_operations_of_tensorflow_are_no_experiment():
    parts = Parts(tensorflow=("RandomUniform (a)", "RandomShuffle (b)"))
    lines, made = studied(parts, lambda experiment: gradients(experiment, without={"something"}))
    assert made == 3
    assert lines[1] == (
        "Likely reason: the operations RandomUniform (a), RandomShuffle (b) draw with TensorFlow's global "
        "seed, so that all workers draw the same numbers for their rows."
    )


@pytest.mark.parametrize(
    ("apart", "settings", "lines"),
    [
        (1e-6, {}, [ROUNDING]),
        (1e-6, {"callbacks": True}, [ROUNDING, f"Likely reason: {reasons.CALLBACK.text}"]),
        (0.01, {"sixteen_bits": True}, [ROUNDING]),
        (0.0, {"virtual_workers": 2}, [VIRTUAL]),
        (1e-6, {"virtual_workers": 2}, [VIRTUAL]),
    ],
)
def test_a_first_step_that_is_the_same(apart, settings, lines):
    def of(experiment: Experiment) -> list[Any]:
        return [np.array([1.0, apart * (experiment.workers - 1)])]

    found, made = studied(Parts(silent=("drop",)), of, **settings)
    assert [line for line in found if line.startswith("Likely")] == lines
    assert made == (3 if apart and "virtual_workers" in settings else 2)


def test_what_differs_in_two_trainings_on_one_worker_is_not_of_the_seed():
    drawn = iter([1.0, 2.0, 3.0])
    lines, made = studied(Parts(silent=("drop",)), lambda experiment: [np.array([next(drawn)])])
    assert lines[1:] == [
        "Known: two trainings of it on 1 worker also differ, by 2.",
        f"Reason: {reasons.REPEATED.text}",
        f"Fix: {reasons.REPEATED.fix}",
    ]
    assert made == 3


def test_experiments_that_fail_leave_what_is_likely():
    everything = Parts(silent=("drop",), drawing=("noise",), tensorflow=("Op (o)",), normalizing=("norm",))
    lines, _ = studied(everything, lambda experiment: None)
    assert len([line for line in lines if line.startswith("Likely reason: ")]) == 4
    assert studied(Parts(), lambda experiment: None)[0][0] == f"Likely reason: {reasons.UNKNOWN.text}"
    lines, _ = studied(everything, lambda experiment: None, virtual_workers=2)
    assert lines[0] == VIRTUAL


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        (pairs(weight=0.0, history=0.0), [f"Likely reason: {reasons.PREDICTING.text}",
                                          f"Fix: {reasons.PREDICTING.fix}"]),
        (pairs(weight=0.0, metric="f1"), [f"Likely reason: {reasons.METRIC.text}",
                                          f"Fix: {reasons.METRIC.fix}"]),
        (pairs(weight=1e-7, history=0.0), [
            "Known: the weights and the optimizer differ by 1e-07 only.", ROUNDING,
            f"Fix: {reasons.ROUNDING.fix.format(most=2)}"]),
        (pairs(weight=1e-7, metric="f1"), [
            "Known: the weights and the optimizer differ by 1e-07 only.", ROUNDING,
            f"Likely reason: {reasons.METRIC.text}", f"Fix: {reasons.ROUNDING.fix.format(most=2)}",
            f"Fix: {reasons.METRIC.fix}"]),
    ],
)  # fmt: skip
def test_a_difference_beside_the_weights_needs_no_experiment(found, lines):
    assert studied(Parts(), lambda experiment: None, found) == (lines, 0)


def test_another_model_is_known_by_its_shape():
    found = compared(Fit([np.zeros(2)], {}), Fit([np.zeros(3)], {}))
    lines, made = studied(Parts(), lambda experiment: None, found)
    assert lines == [f"Reason: {reasons.OTHER_MODEL.text}", f"Fix: {reasons.OTHER_MODEL.fix}"]
    assert made == 0


def test_distance():
    assert distance([np.array([2.0]), np.zeros(1)], [np.array([2.0]), np.array([0.5])]) == 0.25
    assert distance([np.zeros(2)], [np.zeros(2)]) == 0
    assert distance([np.zeros(2)], [np.ones(2)]) == np.inf
    assert distance([np.array([np.nan])], [np.array([1.0])]) == np.inf


layers = keras.layers


class Always(layers.Layer):
    """Draws, also when it predicts."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.generator = keras.random.SeedGenerator(1)

    def call(self, inputs: Any) -> Any:
        return inputs + keras.random.normal(keras.ops.shape(inputs), seed=self.generator)


class Global(layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs + keras.random.normal(keras.ops.shape(inputs))


class OfTensorFlow(layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs + tf.random.uniform([])


class Added(layers.Layer):
    def call(self, inputs: Any) -> Any:
        self.add_loss(keras.ops.sum(inputs**2))
        return inputs


def model_of(*parts: layers.Layer) -> keras.Model:
    model = keras.Sequential([keras.Input((4,)), *parts, layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def lstm(**settings: Any) -> keras.Model:
    return model_of(layers.Reshape((2, 2)), layers.LSTM(2, name="lstm", **settings))


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        (lambda: model_of(layers.Dropout(0.5, name="drop"), layers.Dropout(0.0)), Parts(silent=("drop",))),
        (lambda: model_of(Always(name="always")), Parts(drawing=("always",))),
        (lambda: model_of(Global(name="global")), Parts(drawing=("global",))),
        (lambda: model_of(Added(name="added"), layers.Dense(2, kernel_regularizer="l2")),
         Parts(adding=("added",))),
        (lambda: model_of(
            layers.BatchNormalization(name="norm"), layers.BatchNormalization(synchronized=True),
            layers.BatchNormalization(trainable=False)), Parts(normalizing=("norm",))),
        (lstm, Parts()),
        (lambda: model_of(layers.Dense(2, dtype="mixed_bfloat16")), Parts(sixteen_bits=True)),
    ],
)  # fmt: skip
def test_the_parts_of_a_model(model, parts):
    made = model()
    before = [layer.call for layer in made.layers]
    assert find_parts(made, [[1, 4], "float32"]) == parts
    assert [layer.call for layer in made.layers] == before


def test_dropout_in_an_lstm_draws():
    (name,) = find_parts(lstm(dropout=0.5), [[1, 4], "float32"]).silent
    assert name.startswith("lstm")


def test_operations_of_tensorflow_are_found():
    (operation,) = find_parts(model_of(OfTensorFlow(name="noise")), [[1, 4], "float32"]).tensorflow
    assert operation.startswith("RandomUniform (")
    assert "noise" in operation


def test_a_model_that_cannot_be_traced_may_draw_with_all_its_generators():
    assert find_parts(lstm(), [[1, 3], "float32"]).silent  # the wrong number of inputs


def test_a_probe_is_without_parts():
    x = np.ones((4, 4), "float32")
    drop = layers.Dropout(0.5)
    norm = layers.BatchNormalization()
    model = probed(model_of(drop, norm), [DRAWS, ROWS])
    assert np.array_equal(drop(x, training=True), x)
    assert norm.synchronized
    assert (type(model.optimizer), model.optimizer.momentum) == (keras.optimizers.SGD, 0.9)


@pytest.mark.parametrize(("part", "divided"), [(ADDED, "added"), (SUM, "loss")])
def test_a_probe_divides_sums_by_the_rows(part, divided):
    x, y = np.ones((4, 4), "float32"), np.zeros((4, 1), "float32")
    plain = model_of(Added())
    plain.compile("sgd", lambda y_true, y_pred: keras.ops.sum((y_true - y_pred) ** 2))
    outputs = plain(x)
    whole, added = float(plain.compute_loss(x, y, outputs)), float(sum(plain.losses))
    assert added == pytest.approx(16.0)
    model = probed(plain, [part])
    outputs = model(x)
    parts = {"loss": whole - added, "added": added}
    parts[divided] /= 4
    assert float(model.compute_loss(x, y, outputs)) == pytest.approx(sum(parts.values()))


def test_an_experiment_is_one_step_without_what_needs_more():
    arguments = {"epochs": 9, "initial_epoch": 3, "callbacks": [1], "validation_data": 2, "batch_size": 8}
    plan = plan_same_fit(None, [2, 1, 2.0], None, arguments)
    assert (plan.workers, plan.tolerance) == ((1, 2), 1e-6)
    assert plan.arguments_of(Experiment(2, virtual_workers=4)) == {
        "verbose": 0, "seed": 1, "initial_epoch": 3, "batch_size": 8, "epochs": 4, "steps_per_epoch": 1,
        "validation_freq": [5], "virtual_workers": 4,
    }  # fmt: skip
    assert plan_same_fit(None, [1, 2], None, {"virtual_workers": 2}).tolerance == 0
