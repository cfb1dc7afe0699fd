"""The comparison of fits without workers: what differs, and which reason is found.

``tests/python/test_testing.py`` trains on workers.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tfdistr.checkpoint.trace import TracedStep
from tfdistr.errors import ArgumentError
from tfdistr.same_fit import reasons
from tfdistr.same_fit.difference import Difference, Pair, find_difference
from tfdistr.same_fit.explanation import Run, explain
from tfdistr.same_fit.plan import plan_same_fit
from tfdistr.strategies.exact.batch_check import SUM
from tfdistr.strategies.noted_layers import DRAWS, NORMALIZES, SAME
from tfdistr.training.model_state import OptimizerValues


@dataclass
class Fit:
    """What a comparison reads of a result."""

    weights: list[Any]
    history: dict[str, list[float]]
    optimizer: OptimizerValues = field(default_factory=lambda: OptimizerValues([np.zeros(2)], None))
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


def explained(
    *differences: str, again: float = 0.5, one: Any = None, two: Any = None, **settings: Any
) -> list[str]:
    """What an explanation says after the first lines.

    Args:
        again: The loss of another training on one worker; that of the fit is 0.5.
        one: The steps of this training.
        two: The steps of another training on two workers.
    """
    runs = {1: Run({"loss": [again]}, one), 2: Run({}, two)}
    found = settings.pop("found", pairs())
    made = explain(found, {"loss": [0.5]}, differences, runs.__getitem__, **settings)
    return made.message(found, 2).splitlines()[4:]


def steps(*losses: float, rate: float = 0.1) -> dict[int, TracedStep]:
    return {number: TracedStep(number, 1, loss, (2.0,), (rate,)) for number, loss in enumerate(losses, 7)}


ROUNDING, VIRTUAL = f"Likely reason: {reasons.ROUNDING.text}", f"Likely reason: {reasons.VIRTUAL.text}"
CALLBACK, UNKNOWN = f"Likely reason: {reasons.CALLBACK.text}", f"Likely reason: {reasons.UNKNOWN.text}"


NOT_OF_ONE = "The result on several workers is not that of one worker: "


@pytest.mark.parametrize(
    ("said", "difference", "fix"),
    [
        ("", f"{DRAWS} drop", "Pass virtual_workers=2: the numbers"),
        ("", f"{SAME} RandomUniform (noise)", "Draw with keras.random"),
        ("", f"{NORMALIZES} norm", "Use BatchNormalization(synchronized=True)"),
        (NOT_OF_ONE, f"the gradient of w differs, because the loss is {SUM}", "Return the mean over the"),
        (NOT_OF_ONE, "the variable v differs", "Gather the rows"),
    ],
)
def test_what_a_fit_knows_is_the_reason(said, difference, fix):
    reason, way = explained(said + difference)
    assert reason == f"Reason: {difference}."
    assert way.startswith(f"Fix: {fix}")


def test_several_reasons_have_several_fixes():
    lines = explained(f"{DRAWS} drop", f"{NORMALIZES} norm")
    assert [line.partition(":")[0] for line in lines] == ["Reason", "Reason", "Fix", "Fix"]


def test_a_reason_is_likely_if_something_is_not_checked():
    note = "Not checked whether the result is that of one worker (call()): it runs eagerly."
    lines = explained(f"{DRAWS} drop", note)
    assert lines[:2] == [f"Known: {note}", f"Likely reason: {DRAWS} drop."]


@pytest.mark.parametrize(
    ("one", "two", "settings", "lines"),
    [
        (steps(1, 2), steps(1.0001, 2), {}, [ROUNDING]),
        (steps(1, 2), steps(1, 2), {"callbacks": True}, [ROUNDING, CALLBACK]),
        (steps(1, 2), steps(1.01, 2), {"sixteen_bits": True}, [ROUNDING]),
        (steps(1, 2), steps(1, 2), {"virtual": True}, [VIRTUAL]),
    ],
)
def test_steps_that_are_the_same(one, two, settings, lines):
    known, *rest = explained(one=one, two=two, **settings)
    assert known.startswith("Known: all 2 steps have the same losses and gradient norms")
    assert [line for line in rest if not line.startswith("Fix: ")] == lines


@pytest.mark.parametrize(
    ("two", "settings", "step", "reason"),
    [
        (steps(3, 2), {}, "7 is the first that differs: loss 1", UNKNOWN),
        (steps(1.0001, 2.1), {}, "8 is the first that differs: loss 2", ROUNDING),
        (steps(1.0001, 2), {"virtual": True}, "7 is the first that differs: loss 1", VIRTUAL),
        (steps(1, 2, rate=0.2), {"callbacks": True}, "7 is the first that differs: loss 1",
         f"Reason: {reasons.CALLBACK.text}"),
    ],
)  # fmt: skip
def test_the_first_step_that_differs(two, settings, step, reason):
    known, *rest = explained(one=steps(1, 2), two=two, **settings)
    assert known.startswith(f"Known: step {step}, gradient norm 2, learning rate 0.1, and loss ")
    assert rest[0] == reason


def test_what_differs_in_two_trainings_on_one_worker_is_not_of_the_seed():
    assert explained(f"{DRAWS} drop", again=0.6) == [
        'Known: two trainings on 1 worker also differ: the metric "loss" is 0.5 and 0.6.',
        f"Reason: {reasons.REPEATED.text}",
        f"Fix: {reasons.REPEATED.fix}",
    ]
    assert explained(f"{DRAWS} drop", again=0.5001)[0] == f"Reason: {DRAWS} drop."


def test_a_model_without_a_trace_keeps_what_is_likely():
    def fails(workers: int) -> Any:
        raise ArgumentError("no trace")

    note = "Not checked whether the result is that of one worker (call()): it runs eagerly."
    made = explain(pairs(), {}, [note], fails)
    assert made.message(pairs(), 2).splitlines()[4:6] == [f"Known: {note}", UNKNOWN]
    assert explain(pairs(), {}, [], fails, virtual=True).reasons == [reasons.VIRTUAL]
    assert not explain(pairs(), {}, [f"{DRAWS} drop"], fails).sure


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
def test_a_difference_beside_the_weights_needs_no_trace(found, lines):
    assert explained(found=found) == lines


def test_another_model_is_known_by_its_shape():
    found = compared(Fit([np.zeros(2)], {}), Fit([np.zeros(3)], {}))
    assert explained(found=found) == [
        f"Reason: {reasons.OTHER_MODEL.text}", f"Fix: {reasons.OTHER_MODEL.fix}",
    ]  # fmt: skip


def test_a_training_with_a_trace_has_a_folder_and_checkpoints():
    plan = plan_same_fit(None, [2, 1, 2.0], None, {"epochs": 9, "batch_size": 8})
    assert (plan.workers, plan.tolerance) == ((1, 2), 1e-6)
    assert plan.arguments_in("folder") == {
        "verbose": 0, "seed": 1, "epochs": 9, "batch_size": 8, "run_dir": "folder",
        "checkpoint_every": "epoch",
    }  # fmt: skip
    assert plan_same_fit(None, [1, 2], None, {"virtual_workers": 2}).tolerance == 0
