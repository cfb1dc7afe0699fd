"""Gradients that the tapes of a user's step give; test_equality.py and test_virtual_workers.py train more."""

import json

import pytest
from clusters import run_well

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    file = tmp_path_factory.mktemp("tapes") / "found.json"
    run_well("tapes.py", 1, [str(file)], timeout=250)
    return json.loads(file.read_text())


def test_virtual_workers_that_run_eagerly_add_up_the_rows_of_a_vector(found):
    assert found["virtual, eagerly"] < 1e-6


@pytest.mark.parametrize(
    ("replicas", "place"),
    [("two devices", "a tf.function"), ("virtual", "a tf.function"), ("branch", "a branch or a loop")],
)
def test_gradients_of_the_whole_batch_and_of_some_rows_cannot_be_mixed(found, replicas, place):
    what, received, fix = found["mixed"][replicas].splitlines()
    assert what.startswith("Cannot combine the gradients of a weight: some are those of the whole batch, and")
    assert received.startswith("Received: gradients of ")
    assert received.endswith(f"/kernel, some from train_step() itself and some from {place} in it")
    assert fix == f"Fix: Take all of them with tape.gradient() in train_step() itself, and none in {place}."
