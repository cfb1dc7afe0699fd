"""N workers or devices give what one gives, in some cases of `make equality`."""

import functools
import logging
import os
import sys
import warnings
from collections.abc import Callable

import pytest
from paths import ROOT

from tfdistr.errors import BatchLossWarning
from tfdistr.utils.warn import ABOUT_BATCH
from tfdistr.utils.warn import NOTE as AS_NOTE

FOLDER = ROOT / "tests" / "equality"
sys.path.append(str(FOLDER))
import matrix  # noqa: E402
from case import CASES, Case  # noqa: E402
from said import NOTE, Said, listening  # noqa: E402

pytestmark = pytest.mark.timeout(600)

# On two workers; `make equality` has all cases on two and three. And on two devices of one process.
ON_WORKERS = [
    ("drop-in", "masked_tokens"), ("drop-in", "last_batch_smaller_than_workers"),
    ("distributed_fit", "custom_train_step"), ("drop-in", "pearson_correlation"),
    ("drop-in", "gradients_kept_in_variables"),
]  # fmt: skip
ON_DEVICES = [
    ("distributed_fit", "sequential"), ("drop-in", "sequential"), ("drop-in", "clipped_by_the_step"),
    ("drop-in", "clipped_rows_of_an_embedding"), ("drop-in", "gradients_of_an_own_function"),
    ("drop-in", "private_gradients"), ("drop-in", "vector_loss_over_synchronized_norm"),
]  # fmt: skip


@pytest.fixture(scope="module")
def rows_of() -> Callable[[str], dict[tuple[str, str], matrix.Row]]:
    @functools.cache
    def run(communication: str) -> dict[tuple[str, str], matrix.Row]:
        pairs = ON_DEVICES if communication == "mirrored" else ON_WORKERS
        rows = matrix.run_matrix(pairs, (2,), communication=communication, cases="cases_of_rows")
        return {(row.way, row.case): row for row in rows}

    return run


@pytest.mark.parametrize(
    ("communication", "way", "case"),
    [*(("auto", *pair) for pair in ON_WORKERS), *(("mirrored", *pair) for pair in ON_DEVICES)],
)
def test_workers_and_devices_equal_one(rows_of, communication, way, case):
    if communication == "auto" and os.environ.get("SLOW"):
        pytest.skip("make test-all has all cases")
    row = rows_of(communication)[way, case]
    assert row.well, row.failure.details if row.failure else matrix.table([row])
    assert row.differences.keys() == {"weights", "history", "evaluate", "predict"}


EQUAL, APART = {"weights": 0.0}, {"weights": 0.1}
WARNING = Said("BatchLossWarning", "The loss 'pairs' compares rows.\nFix: gather().")
PROGRESS = Said(NOTE, "Worker 1 waits.")
REFUSED = matrix.Failure("Fix: this", "Traceback\ntfdistr.errors.ArgumentError: Cannot split 'pairs'.")


@pytest.mark.parametrize(
    ("case", "outcome", "status"),
    [
        ({}, {"differences": EQUAL}, "ok"),
        ({}, {"differences": EQUAL, "said": (WARNING,)}, "ok"),
        ({}, {"differences": APART, "said": (WARNING,)}, "MISSED (weights 0)"),
        ({}, {"failure": REFUSED}, "FAILED (Fix: this)"),
        ({"quiet": True}, {"differences": EQUAL, "said": (PROGRESS,)}, "ok"),
        ({"quiet": True}, {"differences": EQUAL, "said": (WARNING,)},
         "WARNED (The loss 'pairs' compares rows.)"),
        ({"expects": "equal or said", "because": "pairs"}, {"differences": EQUAL}, "ok"),
        ({"expects": "equal or said", "because": "pairs"}, {"differences": APART}, "MISSED (weights 0)"),
        ({"expects": "equal or said", "because": "pairs"}, {"differences": APART, "said": (PROGRESS,)},
         "MISSED (weights 0)"),
        ({"expects": "equal or said", "because": "PAIRS"},
         {"differences": APART, "said": (PROGRESS, WARNING)},
         "said: The loss 'pairs' compares rows."),
        ({"expects": "said"}, {"differences": EQUAL}, "MISSED (equal, and not said)"),
        ({"expects": "said or refused", "because": "pairs"}, {"failure": REFUSED},
         "refused: Cannot split 'pairs'."),
        ({"expects": "refused", "because": "layer"}, {"failure": REFUSED}, "FAILED (Fix: this)"),
        ({"expects": "refused"}, {"failure": matrix.Failure("alone", REFUSED.details, alone=True)},
         "FAILED (alone)"),
        ({"expects": "refused"},
         {"failure": matrix.Failure("lost", "tfdistr.errors.WorkerFailedError: Worker 1 failed.")},
         "FAILED (lost)"),
    ],
)  # fmt: skip
def test_verdict(monkeypatch, case, outcome, status):
    monkeypatch.setitem(CASES, "one", Case(lambda: None, **case))
    row = matrix.Row("one", "drop-in", 2, worst="weights 0", **outcome)
    assert row.status == status
    assert row.well == status.startswith(("ok", "said", "refused"))


def test_warnings_and_progress_lines_are_heard():
    log = logging.getLogger("tfdistr")
    with listening() as said:
        log.warning("Rows of %s.", "one worker", extra=ABOUT_BATCH)
        log.warning("Waiting.", extra=AS_NOTE)
        warnings.warn("Not of tfdistr.", stacklevel=1)
        log.info("A detail.")
    assert said == [Said(BatchLossWarning.__name__, "Rows of one worker."), Said(NOTE, "Waiting.")]
