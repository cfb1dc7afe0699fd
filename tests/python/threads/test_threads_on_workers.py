"""What others have reported of several workers, done here: docs/threads.md has a row for each test."""

import runpy
from typing import Any

import numpy as np
import pytest
from clusters import PROGRAMS, run_well

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.slow(reason="four trainings in each of two processes, over MPI and by TF_CONFIG"),
]

BOUND = 1e-6  # of what float32 sums in another order
Found = list[dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Keras alone gives, in this process and without a strategy."""
    program = runpy.run_path(str(PROGRAMS / "threads.py"))
    return program["run"](program["Place"](None, tmp_path_factory.mktemp("one")))


@pytest.fixture(scope="module", params=["mpi", "TF_CONFIG"])
def two(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What two workers give."""
    folder = tmp_path_factory.mktemp("two")
    run_well("threads.py", 2, [str(folder)], mpi=request.param == "mpi", timeout=200)
    return [dict(np.load(folder / f"{index}.npz")) for index in range(2)]


def assert_the_same(one: dict[str, Any], two: Found, case: str) -> None:
    """Each worker has what one process has: history, weights and number of steps."""
    names = [name for name in one if name.startswith(f"{case}/")]
    assert names
    for worker in two:
        for name in names:
            np.testing.assert_allclose(worker[name], one[name], atol=BOUND, rtol=BOUND, err_msg=name)


def test_keras_20329(one, two):
    assert_the_same(one, two, "keras_20329")


def test_keras_21061(one, two):
    assert_the_same(one, two, "keras_21061")
    assert one["keras_21061/loss"] == [1.0, 1.0]


def test_ray_47464(one, two):
    assert_the_same(one, two, "ray_47464")


def test_tensorflow_35878(one, two):
    assert_the_same(one, two, "tensorflow_35878")
    assert all(len(worker["tensorflow_35878/loss"]) == 3 for worker in two)  # no epoch was cut off
