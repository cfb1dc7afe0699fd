"""Data of several kinds in Keras's fit on two workers: each example is used once per epoch."""

import json

import pytest
from clusters import run_well

pytestmark = pytest.mark.timeout(240)

MEAN = (2**16 - 1) / 2**15 / 16


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    ended = run_well("given_data.py", 2, [str(folder)])
    for policy in ("OFF", "HINT"):
        told = f"auto-shard policy {policy}: each worker takes its rows of every global batch, as under DATA."
        assert told in ended[0].output
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(2)]


@pytest.mark.parametrize("data", ["PyDataset", "generator", "OFF", "HINT", "sampled", "cache"])
def test_each_example_is_used_once_per_epoch(found, data):
    assert [worker[data] for worker in found] == [pytest.approx([MEAN, MEAN], rel=1e-6)] * 2


def test_unseeded_random_numbers_are_alike(found):
    first, second = (worker["random"] for worker in found)
    assert first == second


def test_orders_that_depend_on_the_worker_are_refused(found):
    for worker in found:
        lines = worker["other seeds"].splitlines()
        assert lines[0] == "JobMismatchError: All workers must run the same job."
        assert lines[1].startswith("Received: seeds of the data: [(0, ")
        assert "on worker 0, [(1, " in lines[1]
