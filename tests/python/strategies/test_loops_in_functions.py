"""Loops over distributed batches, in and outside of a ``tf.function``, on workers and on devices."""

import json

import pytest
from clusters import run_well

pytestmark = pytest.mark.timeout(200)

WORKERS = {"1 worker": 1, "2 workers": 2, "2 devices": 1}


@pytest.fixture(scope="module", params=WORKERS)
def run(request, tmp_path_factory):
    """The name of a run, and what each of its processes has found."""
    workers, mirrored = WORKERS[request.param], ["mirrored"] * (request.param == "2 devices")
    files = [tmp_path_factory.mktemp("loops") / f"{index}.json" for index in range(workers)]
    arguments = [[str(file), *mirrored] for file in files]
    run_well("loops_in_functions.py", workers, *arguments, timeout=90)
    return request.param, [json.loads(file.read_text()) for file in files]


@pytest.mark.parametrize(
    ("way", "expected"),
    [
        ("for outside", [6, 22, 27]),
        ("next outside", [6, 22, 27, -1]),
        ("for inside", [6 + 2 * 22 + 3 * 27, 6 + 2 * 22 + 3 * 27, 55]),
        ("for over an iterator inside", 6 + 2 * 22 + 3 * 27),
        ("next inside", [28, 27]),
        ("iter inside", [[6, 22], [6, 22]]),
        ("iter inside, from a function", [[6, 22], [6, 22]]),
        ("batches", 3),
    ],
)
def test_each_way_sees_each_batch_once(run, way, expected):
    assert [process[way] for process in run[1]] == [expected] * len(run[1])


def test_a_loop_inside_may_break_on_one_device_for_each_process(run):
    name, processes = run
    refused = "break and return statements are not yet supported in for ... in distributed input loops."
    expected = refused if name == "2 devices" else 6
    assert [process["break inside"] for process in processes] == [expected] * len(processes)


def test_nested_values_of_replicas_are_reduced_one_by_one(run):
    name, processes = run
    expected = {"one": int(name[0]), "more": [2 * int(name[0])]}
    assert [process["nested"] for process in processes] == [expected] * len(processes)
