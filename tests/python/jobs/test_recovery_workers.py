"""What workers take from the checkpoint of another number of workers."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfdistr.checkpoint.variables import Variable, assign, parts_of


def test_parts_of_workers_that_are_gone_or_new():
    arrays = {"0": np.zeros(2), "1 each": np.arange(6).reshape(3, 2)}
    alike, each = parts_of(arrays, 0, 2, before=3)
    assert (alike.borrowed, alike.left.tolist()) == (False, [[0, 0]])
    assert (each.borrowed, each.own.tolist(), each.left.tolist()) == (False, [0, 1], [[4, 5]])
    assert [part.left for part in parts_of(arrays, 1, 2, before=3)] == [None, None]
    same = parts_of(arrays, 0, 3, before=3)
    assert [(part.left, part.borrowed) for part in same] == [(None, False), (None, False)]
    new = parts_of(arrays, 3, 4, before=3)
    assert [(part.own.tolist(), part.borrowed) for part in new] == [([0, 0], True), ([0, 1], True)]


@pytest.mark.parametrize(
    ("worker", "workers", "expected"),
    [
        (0, 2, {"sum alike": 3, "sum each": 1, "step": 9, "seed": 11}),
        (0, 1, {"sum alike": 6, "sum each": 3, "step": 9, "seed": 11}),
        (1, 3, {"sum alike": 3, "sum each": 2, "step": 9, "seed": 22}),
        (2, 3, {"sum alike": 0, "sum each": 0, "step": 9, "seed": 33}),
    ],
    ids=["as before", "one is gone", "one of before", "one is new"],
)
def test_sums_stay_the_same_with_another_number_of_workers(worker, workers, expected):
    arrays: dict[str, Any] = {
        "0": np.float32(3),
        "1 each": np.array([1, 2], "float32"),
        "2": np.int64(9),
        "3 each": np.array([11, 22]),
    }
    variables = [
        Variable("sum alike", tf.Variable(0.0), is_part=True),
        Variable("sum each", tf.Variable(0.0), is_part=True),
        Variable("step", tf.Variable(0, dtype=tf.int64)),
        Variable("seed", tf.Variable(33, dtype=tf.int64)),
    ]
    assign(variables, parts_of(arrays, worker, workers, before=2))
    assert {variable.name: variable.own.numpy() for variable in variables} == expected
