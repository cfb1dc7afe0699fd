"""Callbacks that do, and that do not, the same on all workers, in Keras's fit on two workers."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from clusters import run_well

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What both workers found."""
    folder = tmp_path_factory.mktemp("own")
    run_well("callbacks_apart.py", 2, [str(folder)])
    found = [json.loads((folder / f"{index}.json").read_text()) for index in range(2)]
    return SimpleNamespace(found=found, chief=found[0], other=found[1])


@pytest.mark.parametrize(
    ("hook", "call"),
    [
        ("on_epoch_end", "predict()"),
        ("on_epoch_begin", "evaluate()"),
        ("on_train_begin", "fit()"),
        ("on_train_batch_begin", "a read of a value of all workers, such as a metric"),
        ("on_train_batch_end", "predict()"),
        ("on_train_end", "a new variable"),
    ],
)
def test_a_call_of_the_chief_alone_that_needs_all_workers_is_refused_on_all(ran, hook, call):
    for found in ran.found:
        assert found["calls"][hook] == refused(hook, call)


def refused(hook: str, call: str) -> list[str]:
    return [
        "JobMismatchError: The callbacks of the workers make different calls that need all workers.",
        f"Received: {call} on worker 0, the end of {hook}() on worker 1",
        "Fix: Make the call on every worker, without `if tfdistr.is_chief():`, and use its result on the "
        "chief. chief_only() is for callbacks that only read, write or print.",
    ]


def test_a_fit_within_a_callback_leaves_the_callback_checked(ran):
    for found in ran.found:
        assert found["nested"] == {"lines": refused("on_epoch_end", "predict()"), "compared": 1}


def test_an_error_in_a_callback_ends_it(ran):
    assert [found["raised"] for found in ran.found] == [[False, False]] * 2


def test_a_trained_model_is_released(ran):
    assert [found["released"] for found in ran.found] == [[False] * 5] * 2


def test_all_workers_may_predict_in_a_callback(ran):
    assert len(ran.chief["together"]) == 3
    assert ran.chief["together"] == ran.other["together"]


@pytest.mark.parametrize(("case", "variable"), [("weight", "first/kernel"), ("rate", "/learning_rate")])
def test_a_change_on_one_worker_ends_the_training_of_all(ran, case, variable):
    assert ran.chief["changes"][case] == ran.other["changes"][case]
    failed, received, fix = ran.chief["changes"][case]
    assert failed == "JobMismatchError: The workers no longer have the same model."
    assert f"{variable} of worker 1, which differs from that of worker 0 by " in received
    assert received.endswith(" times its largest value, after epoch 1")
    assert fix.startswith("Fix: Change weights and learning rates on every worker alike: without chief_only(")
    assert ("Not all workers run these callbacks: LambdaCallback." in fix) == (case == "rate")


def test_rounding_warns_once(ran):
    for found in ran.found:
        (said,) = found["changes"]["rounding"]
        assert said.startswith("The weights of the workers differ by rounding (")
        assert "first/kernel of worker 1 by " in said
        assert said.endswith("after epoch 1), because their processors or their TensorFlow kernels differ.")


def test_a_change_on_all_workers_is_none(ran):
    assert ran.chief["changes"]["all"] == ran.other["changes"]["all"] == []


def test_variables_are_numbers_in_callbacks(ran):
    rate = float(np.float32(0.001))
    for found in ran.found:
        assert found["numbers"] == [[], [[rate, 4 * n, "1.0e-03", 4.0 * n, True] for n in (1, 2, 3)]]


def test_only_what_normalizes_with_a_batch_is_noted(ran):
    (said,) = ran.chief["normalized"]["inner"]
    assert said.startswith("inner: each worker normalizes with its own rows")
    assert [ran.chief["normalized"][name] for name in ("off", "inner_off", "frozen")] == [[], [], []]


def test_what_normalizes_with_a_batch_is_noted_once_in_each_fit(ran):
    noted = ["each worker normalizes with its own rows in norm"]
    assert ran.chief["normalized_again"] == [[noted, noted], [noted, noted]]


def test_missing_values_are_named_though_the_loss_is_finite(ran):
    assert ran.chief["not_numbers"]["missing"] == [
        "The inputs of worker 1 have missing values (NaN): x['part'] (step 2). The loss need not show them, "
        "as relu and other layers may turn them into 0. Replace them, or leave these examples out."
    ]


def test_a_loss_that_the_step_leaves_out_is_not_reported(ran):
    said = [line for line in ran.chief["not_numbers"]["skipped"] if "The loss of worker" in line]
    assert said == []


@pytest.mark.parametrize("kind", ["in the step", "of the program"])
def test_an_optimizer_that_the_model_does_not_hold_is_refused(ran, kind):
    for found in ran.found:
        said = "\n".join(found["optimizers"][kind])
        assert "must be an attribute of the model or of one of its layers" in said
        assert "an optimizer of the class SGD" in said
        assert "self.d_optimizer = ..." in said
