"""Models that were made outside of the scope of the strategy for several workers."""

import json

import pytest
from clusters import run_cluster, run_well

pytestmark = pytest.mark.timeout(240)

OUTSIDE = (
    "Cannot train the model 'net' on 2 workers: it was made outside of strategy.scope(), so each worker "
    "would train it alone."
)
PARTS = "Cannot use the model 'net' on several workers: parts of it were made outside of strategy.scope()."
FIX = (
    "Fix: Build and compile the model inside `with strategy.scope():`. A model that this worker is to train "
    'alone needs the scope of tf.distribute.OneDeviceStrategy("/cpu:0").'
)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    run_well("outside_scope.py", 2, [str(folder)])
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(2)]


@pytest.mark.parametrize("case", ["outside", "outside again", "compiled inside"])
def test_a_model_made_outside_is_not_trained(found, case):
    for index, worker in enumerate(found):
        lines = worker[case].splitlines()
        assert [lines[0], lines[2]] == [OUTSIDE, FIX]
        assert lines[1].startswith("Received: a model that was compiled at ")
        assert lines[1].endswith(f" without the scope, on worker {index}")
        assert "outside_scope.py:" in lines[1]


def test_the_scope_around_fit_comes_too_late(found):
    assert [worker["fit inside"].splitlines()[0] for worker in found] == [OUTSIDE] * 2


@pytest.mark.parametrize(
    ("case", "parts"),
    [
        ("compiled outside", "the metric 'loss', the optimizer Adam"),
        ("metric outside", "the metric 'mae'"),
        ("evaluate inside", "the metric 'loss'"),
    ],
)
def test_parts_made_outside_are_named(found, case, parts):
    for worker in found:
        assert worker[case].splitlines()[:2] == [PARTS, f"Received: {parts} without the scope"]


@pytest.mark.parametrize("case", ["evaluate", "predict", "inside", "alone"])
def test_what_one_worker_does_alone_or_all_do_together_is_allowed(found, case):
    assert [worker[case] for worker in found] == [None, None]


def test_a_script_whose_strategy_was_never_used_fails_at_exit():
    for worker in run_cluster("outside_scope.py", 2, ["unnoticed"]):
        assert worker.status == 1
        assert "trained\n" in worker.output
        assert "ArgumentError: Each worker has trained alone: the strategy was never used." in worker.output
        assert "Received: a model 'net' that was trained outside of strategy.scope()" in worker.output
        assert FIX in worker.output
