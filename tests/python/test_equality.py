"""N workers give what one worker gives, in a part of the cases of `make equality`; and that can fail."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import numpy as np
import pytest
from paths import ROOT

FOLDER = ROOT / "tests" / "equality"
sys.path.append(str(FOLDER))
import matrix  # noqa: E402
from cases import CASES  # noqa: E402

pytestmark = pytest.mark.timeout(600)

# On two workers. `make equality` has all cases on two and three, with COMMUNICATION=mirrored on devices.
ON_WORKERS = [
    ("drop-in", "masked_tokens"), ("drop-in", "last_batch_smaller_than_workers"),
    ("distributed_fit", "custom_train_step"),
]  # fmt: skip
ON_DEVICES = {
    "drop-in": ["compiled_train_step", "synchronized_batch_normalization", "loss_scale"],
    "distributed_fit": ["custom_train_step", "mixed_bfloat16"],
}  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], matrix.Row]:
    return {(row.way, row.case): row for row in matrix.run_matrix(ON_WORKERS, (2,))}


@pytest.mark.skipif(bool(os.environ.get("SLOW")), reason="make test-all has all cases")
@pytest.mark.parametrize(("way", "case"), ON_WORKERS)
def test_workers_equal_one_worker(rows, way, case):
    row = rows[way, case]
    assert row.status == "ok", row.failure.details if row.failure else matrix.table([row])
    assert row.differences.keys() == {"weights", "history", "evaluate", "predict"}


@pytest.fixture(scope="module")
def rows_on_devices(request) -> dict[tuple[str, str], matrix.Row]:
    # Only what is tested now is trained.
    tests = [item for item in request.session.items if item.originalname.endswith("equal_one_device")]
    pairs = [(test.callspec.params["way"], test.callspec.params["case"]) for test in tests]
    made = matrix.run_matrix(pairs, (3,), communication="mirrored")
    return {(row.way, row.case): row for row in made}


@pytest.mark.slow
@pytest.mark.parametrize(("way", "case"), [(way, name) for way in ON_DEVICES for name in ON_DEVICES[way]])
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


def test_a_known_failure_stays_in_the_table_and_must_happen(monkeypatch):
    known = dataclasses.replace(CASES["sgd"], known="a reason")
    monkeypatch.setitem(CASES, "sgd", known)
    same = dict.fromkeys(matrix.GROUPS, 0.0)
    missed = matrix.Row("sgd", "drop-in", 2, same | {"history": 1.0}, "history loss")
    assert missed.status == "known: MISSED (history loss)"
    assert matrix.Row("sgd", "drop-in", 2, same).status == "FAILED (no longer, remove `known`)"


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
