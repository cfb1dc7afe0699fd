"""N workers give what one worker gives: Keras's own fit, evaluate and predict under the strategy."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import numpy as np
import pytest
from clusters import PROGRAMS, run_cluster

pytestmark = pytest.mark.timeout(600)

CASES = re.findall(r'^    "(\w+)": \(', (PROGRAMS / "equality.py").read_text(), re.MULTILINE)
BOUND = 1e-6


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """The folders with all cases, by number of workers and index; each cluster runs when first asked for."""

    @functools.cache
    def run(workers: int) -> list[Path]:
        folders = [tmp_path_factory.mktemp(f"workers-{workers}-{index}") for index in range(workers)]
        ended = run_cluster("equality.py", workers, *[[str(f), *CASES] for f in folders], timeout=400)
        for worker in ended:
            assert worker.status == 0, worker.output[-3000:]
        return folders

    return run


def test_there_are_cases():
    assert len(CASES) >= 20


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("case", CASES)
def test_workers_equal_one_worker(results, case, workers):
    (one,) = results(1)
    with np.load(one / f"{case}.npz") as expected:
        for folder in results(workers):
            with np.load(folder / f"{case}.npz") as received:
                assert sorted(received.files) == sorted(expected.files)
                for name in expected.files:
                    assert received[name].shape == expected[name].shape
                    difference = np.abs(received[name] - expected[name]).max(initial=0)
                    # Sums over many examples (loss, logits) are compared relative to their size.
                    scale = max(1.0, float(np.abs(expected[name]).max(initial=0)))
                    assert difference <= BOUND * scale, f"{name}: {difference:.1e}"
