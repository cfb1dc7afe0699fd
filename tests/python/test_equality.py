"""N workers give what one worker gives, in some cases of `make equality`."""

import logging
import os
import sys
import warnings

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

# On two workers. `make equality` has all cases on two and three, with COMMUNICATION=mirrored on devices.
ON_WORKERS = [
    ("drop-in", "masked_tokens"), ("drop-in", "last_batch_smaller_than_workers"),
    ("distributed_fit", "custom_train_step"), ("drop-in", "pearson_correlation"),
    ("drop-in", "gradients_kept_in_variables"),
]  # fmt: skip


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], matrix.Row]:
    return {(row.way, row.case): row for row in matrix.run_matrix(ON_WORKERS, (2,))}


@pytest.mark.skipif(bool(os.environ.get("SLOW")), reason="make test-all has all cases")
@pytest.mark.parametrize(("way", "case"), ON_WORKERS)
def test_workers_equal_one_worker(rows, way, case):
    row = rows[way, case]
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
