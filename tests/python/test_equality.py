"""N workers give what one worker gives, in some cases of `make equality`."""

import os
import sys

import pytest
from paths import ROOT

FOLDER = ROOT / "tests" / "equality"
sys.path.append(str(FOLDER))
import matrix  # noqa: E402

pytestmark = pytest.mark.timeout(600)

# On two workers. `make equality` has all cases on two and three, with COMMUNICATION=mirrored on devices.
ON_WORKERS = [
    ("drop-in", "masked_tokens"), ("drop-in", "last_batch_smaller_than_workers"),
    ("drop-in", "accumulated_gradients"), ("distributed_fit", "custom_train_step"),
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
