"""A loop of one's own with the loss helpers gives what one worker gives.

The reference is a plain loop without a strategy, in the same process; see programs/losses.py.
"""

import json

import numpy as np
import pytest
import tensorflow as tf
from clusters import run_well

import tfdistr
from tfdistr.errors import ArgumentError
from tfdistr.utils.describe import ValueOfR

pytestmark = pytest.mark.timeout(400)

BOUND = 1e-6
CASES = ("even", "uneven last batch, L2", "last batch of one", "one example", "loop in a tf.function")
# Workers of tfdistr's strategy, or devices of TensorFlow's MirroredStrategy.
RUNS = ("1 worker", "2 workers", "2 devices")


@pytest.fixture(scope="module", params=RUNS)
def run(request, tmp_path_factory):
    """The number of replicas of a run, and what each of its processes has found."""
    number, kind = request.param.split()
    processes, extra = (1, [number]) if kind == "devices" else (int(number), [])
    folder = tmp_path_factory.mktemp("losses")
    files = [folder / f"{index}.json" for index in range(processes)]
    run_well("losses.py", processes, *[[str(f), *extra] for f in files], timeout=300)
    return int(number), [json.loads(file.read_text()) for file in files]


@pytest.mark.slow(reason="each case is trained in each process")
@pytest.mark.parametrize("case", CASES)
def test_the_helpers_give_the_weights_and_losses_of_one_worker(run, case):
    for process in run[1]:
        found = process["cases"][case]
        assert found["right"] <= BOUND
        assert found["losses"] <= BOUND
        assert found.get("full_size", 0) <= BOUND
        assert found.get("without a strategy", 0) <= BOUND


@pytest.mark.slow(reason="each case is trained in each process")
def test_values_add_up_over_the_replicas(run):
    replicas, processes = run
    rows = [number for number in range(replicas) for _ in range(number + 1)]  # replica r: r + 1 losses of r
    for process in processes:
        assert process["values"] == {
            "half": 60000.0,
            "nothing": 0.0,
            "unequal": pytest.approx(np.mean(rows)),
            "regularization": 3.0,
            "regularization, a tensor": 4.0,
            "regularization, none": 0.0,
            "regularization, types": 3.0,
        }


@pytest.mark.slow(reason="each case is trained in each process")
@pytest.mark.parametrize("function", ["average_loss", "regularization_loss"])
def test_they_belong_into_the_replica_function(run, function):
    for process in run[1]:
        assert process["errors"][function] == "a call in the scope of the strategy, outside of a replica"


@pytest.mark.parametrize(
    ("losses", "weights", "size", "expected"),
    [
        ([1.0, 2.0, 6.0], None, None, 3.0),
        ([1.0, 2.0, 6.0], [1.0, 0.0, 0.5], None, 4 / 3),
        ([1.0, 2.0, 6.0], None, 4, 2.25),
        ([1.0, 2.0, 6.0], None, 4.0, 2.25),
        ([1.0, 2.0, 6.0], None, tf.constant(9, tf.int64), 1.0),
        ([[1.0, 3.0], [5.0, 7.0]], None, None, 4.0),
        ([[1.0, 3.0], [5.0, 7.0]], [0.0, 1.0], None, 3.0),
        ([[1.0, 3.0], [5.0, 7.0]], [[0.0, 1.0], [1.0, 0.0]], None, 2.0),
        (np.full([2, 3, 4, 5], 2.0), np.ones([2, 3]), None, 2.0),
        (np.zeros([0, 3]), None, None, 0.0),
        (np.array([1, 2]), None, None, 1.5),
    ],
)
def test_averages_by_hand(losses, weights, size, expected):
    assert float(tfdistr.average_loss(losses, weights, size)) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("given", "type_"), [(tf.float16, tf.float32), (tf.bfloat16, tf.float32), (tf.float32, tf.float32),
                         (tf.float64, tf.float64), (tf.int32, tf.float32)])  # fmt: skip
def test_sums_have_at_least_32_bits(given, type_):
    assert tfdistr.average_loss(tf.ones([3], given)).dtype == type_
    assert tfdistr.regularization_loss([tf.ones([], given)]).dtype == type_


WEIGHTS = "`sample_weight` must have the shape of `losses`, or of its first dimensions."
ONE_NUMBER = "`global_batch_size` must be one whole number."


@pytest.mark.parametrize(
    ("arguments", "message", "received"),
    [
        ((2.0,), "`losses` must hold one loss for each example.",
         "a single number: a mean over these rows, or a sum"),
        ((ValueOfR("NA"),), "`losses` must hold numbers.", "NA"),
        ((np.ones(2), [1.0, ValueOfR("NA")]), "`sample_weight` must hold numbers.", "[1.0, NA]"),
        ((np.ones(3), 2.0), WEIGHTS, "weights of shape (), losses of shape (3,)"),
        ((np.ones(3), np.ones([3, 1])), WEIGHTS, "weights of shape (3, 1), losses of shape (3,)"),
        ((np.ones(3), None, tf.constant(2.0)), ONE_NUMBER, "a tensor of type float32 and shape ()"),
        ((np.ones(3), None, tf.constant([2])), ONE_NUMBER, "a tensor of type int32 and shape (1,)"),
    ],
)  # fmt: skip
def test_what_is_refused(arguments, message, received):
    with pytest.raises(ArgumentError) as caught:
        tfdistr.average_loss(*arguments)
    assert (caught.value.message, caught.value.received) == (message, received)


def test_regularization_losses_must_be_numbers():
    with pytest.raises(ArgumentError) as caught:
        tfdistr.regularization_loss([1.0, ValueOfR("NA")])
    assert (caught.value.message, caught.value.received) == ("`losses` must hold numbers.", "NA")


def test_weights_are_compared_when_the_step_runs_if_not_before():
    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None])])
    def loss(losses: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return tfdistr.average_loss(losses, weights)

    assert float(loss(tf.ones([3]), tf.ones([3]))) == 1.0
    with pytest.raises(tf.errors.InvalidArgumentError, match=WEIGHTS):
        loss(tf.ones([3]), tf.ones([1]))
