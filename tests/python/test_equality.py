"""N workers give what one worker gives, in a part of the cases of `make equality`; and that can fail."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from paths import ROOT

FOLDER = ROOT / "tests" / "equality"
sys.path.append(str(FOLDER))
import matrix  # noqa: E402
from cases import CASES  # noqa: E402

pytestmark = pytest.mark.timeout(600)

# On two workers, and on three too where it matters how many rows each has: they take twice as long.
FAST = {
    "drop-in": [
        "functional", "compiled_train_step", "steps_per_execution_10", "masked_tokens",
        "synchronized_batch_normalization", "loss_mean_with_sample_weight", "global_clipnorm",
        "gradient_accumulation", "stateful_metric", "text_and_numbers", "ragged",
        "last_batch_smaller_than_workers", "early_stopping_restores"],
    "distributed_fit": [
        "custom_train_step", "jit_compile", "unbuilt", "embedding", "two_outputs_loss_weights", "adamw",
        "loss_scale", "sparse", "sample_weight", "class_weight", "one_example"],
}  # fmt: skip
ON_DEVICES = {
    "drop-in": [
        "compiled_train_step", "masked_tokens", "synchronized_batch_normalization", "global_clipnorm",
        "loss_scale", "ragged", "text_and_numbers"],
    "distributed_fit": [
        "custom_train_step", "two_outputs_loss_weights", "class_weight", "sample_weight", "one_example",
        "mixed_bfloat16", "steps_per_epoch", "early_stopping_restores"],
}  # fmt: skip
ON_THREE = {
    "drop-in": [
        "masked_tokens", "synchronized_batch_normalization", "gradient_accumulation",
        "last_batch_smaller_than_workers"],
    "distributed_fit": ["custom_train_step", "sample_weight", "one_example"],
}  # fmt: skip
PAIRS = {
    workers: [(way, name) for way, names in cases.items() for name in names]
    for workers, cases in ((2, FAST), (3, ON_THREE))
}


# What `make test` runs of these; `make test-all` runs all.
QUICK = {
    2: {"drop-in": ["masked_tokens", "last_batch_smaller_than_workers"],
        "distributed_fit": ["custom_train_step"]},
    3: {"drop-in": [], "distributed_fit": []},
    "devices": {"drop-in": ["compiled_train_step"], "distributed_fit": []},
}  # fmt: skip


def param(way: str, case: str, workers: int | str) -> Any:
    """The arguments of a test, which is slow unless it is among the quick ones."""
    values = (way, case, workers) if isinstance(workers, int) else (way, case)
    return pytest.param(*values, marks=() if case in QUICK[workers][way] else pytest.mark.slow)


def chosen(request: pytest.FixtureRequest, test: str) -> list[dict[str, Any]]:
    """The arguments of a test for which it is to run now: only for these is there something to train."""
    return [item.callspec.params for item in request.session.items if item.name.partition("[")[0] == test]


@pytest.fixture(scope="module")
def rows(request) -> dict[tuple[str, str, int], matrix.Row]:
    pairs: dict[int, list[tuple[str, str]]] = {2: [], 3: []}
    for test in chosen(request, "test_workers_equal_one_worker"):
        pairs[test["workers"]].append((test["way"], test["case"]))
    each = list(dict.fromkeys(pairs[2] + pairs[3]))
    made = matrix.run_matrix(each, (2, 3), only=pairs)
    return {(row.way, row.case, row.workers): row for row in made}


@pytest.mark.parametrize(
    ("way", "case", "workers"), [param(*pair, workers) for workers, pairs in PAIRS.items() for pair in pairs]
)
def test_workers_equal_one_worker(rows, way, case, workers):
    row = rows[way, case, workers]
    assert row.status == "ok", row.failure.details if row.failure else matrix.table([row])
    assert row.differences.keys() == {"weights", "history", "evaluate", "predict"}


@pytest.fixture(scope="module")
def rows_on_devices(request) -> dict[tuple[str, str], matrix.Row]:
    tests = chosen(request, "test_devices_of_one_process_equal_one_device")
    pairs = [(test["way"], test["case"]) for test in tests]
    made = matrix.run_matrix(pairs, (3,), communication="mirrored")
    return {(row.way, row.case): row for row in made}


@pytest.mark.parametrize(
    ("way", "case"), [param(way, name, "devices") for way in ON_DEVICES for name in ON_DEVICES[way]]
)
def test_devices_of_one_process_equal_one_device(rows_on_devices, way, case):
    row = rows_on_devices[way, case]
    assert row.status == "ok", row.failure.details if row.failure else matrix.table([row])


def test_most_cases_go_both_ways():
    assert {case for case in CASES if len(CASES[case].ways) == 1} == {"validation_split"}


@pytest.fixture(scope="module")
def failing() -> subprocess.CompletedProcess[str]:
    """The runner with cases that miss their bound, fail, hang, and go well, in this order."""
    names = ["unsynchronized_batch_normalization", "fails_on_one_worker", "hangs_on_one_worker", "sgd"]
    options = ["--workers", "2", "--way", "drop-in", "--cases", *names]
    command = [sys.executable, str(FOLDER / "run.py"), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=500)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "result"),
    [
        ("unsynchronized_batch_normalization", "MISSED ("),
        ("fails_on_one_worker", "FAILED (worker 1: ValueError: this worker fails on purpose)"),
        ("hangs_on_one_worker", "FAILED (worker "),
        ("sgd", "ok"),
    ],
)
def test_the_runner_tells_what_is_not_equal(failing, case, result):
    (line,) = [line for line in failing.stdout.splitlines() if line.split()[:2] == [case, "drop-in"]]
    assert result in line
    assert failing.returncode == 1


@pytest.mark.slow
def test_the_runner_shows_where_a_case_hung(failing):
    assert "FAILED (worker" in failing.stdout
    assert "Timeout (0:00:10)!" in failing.stdout
    assert "hangs_on_one_worker" in failing.stdout
    assert "\n1 ok, 1 MISSED, 2 FAILED in " in failing.stdout


def test_a_row_is_ok_up_to_its_bound():
    same = dict.fromkeys(matrix.GROUPS, 1e-6)
    assert matrix.Row("sgd", "drop-in", 2, same).status == "ok"
    assert matrix.Row("sgd", "drop-in", 2, same | {"history": 1.1e-6}, "history loss").status == (
        "MISSED (history loss)"
    )


@pytest.mark.parametrize(
    ("expected", "received", "largest"),
    [
        ([1.0, 2.0], [1.0, 2.5], 0.25),
        ([0.1], [0.3], 0.2),
        ([np.nan, 1.0], [np.nan, 1.0], 0.0),
        ([np.nan], [1.0], np.inf),
        ([1.0], [1.0, 1.0], np.inf),
        ([np.inf], [-np.inf], np.inf),
        ([1.0], None, np.inf),
    ],
)
def test_difference(expected, received, largest):
    arrays = [None if values is None else np.array(values) for values in (expected, received)]
    assert matrix.difference(*arrays) == pytest.approx(largest)
