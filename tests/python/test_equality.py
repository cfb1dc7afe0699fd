"""N workers give what one worker gives, in a part of the cases of `make equality`; and that can fail."""

from __future__ import annotations

import dataclasses
import os
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
@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], matrix.Row]:
    return {(row.way, row.case): row for row in matrix.run_matrix(ON_WORKERS, (2,))}


@pytest.mark.skipif(bool(os.environ.get("SLOW")), reason="make test-all has all cases")
@pytest.mark.parametrize(("way", "case"), ON_WORKERS)
def test_workers_equal_one_worker(rows, way, case):
    row = rows[way, case]
    assert row.status == "ok", row.failure.details if row.failure else matrix.table([row])
    assert row.differences.keys() == {"weights", "history", "evaluate", "predict"}


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
