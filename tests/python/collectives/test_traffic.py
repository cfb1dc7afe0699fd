"""What a training step sends: its gradients, and nothing else."""

import itertools
import json

import pytest
from clusters import run_cluster

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.slow(reason="trains nine models, over MPI and over the ring"),
]

WEIGHTS = 20 * 8 + 8 + 8 * 3 + 3
LARGE = 20 * 100_000 + 100_000 + 100_000 * 3 + 3  # 9.6 MB: the layers' weights do not fit into one piece
OF_TABLE = 8 * 16 * 3 + 3  # the dense weights of the network with a table of 40,000 rows of 16 numbers
STEPS, EPOCHS = 4, 3
#: At the end of each hook of the user's, workers meet: six numbers of each.
MEETING = (1, 2 * 6 * 8)


@pytest.fixture(scope="module", params=["ring", "mpi"])
def sent(request, tmp_path_factory):
    """What was sent until each moment, as numbers of collectives and of bytes."""
    folder = tmp_path_factory.mktemp(request.param)
    arguments = [str(folder), request.param]
    for ended in run_cluster("traffic.py", 2, arguments, timeout=200, mpi=request.param == "mpi"):
        assert ended.status == 0, ended.output[-3000:]
    return json.loads((folder / "traffic.json").read_text()) | {"communication": request.param}


def of_steps(moments: list[tuple[int, int]]) -> set[tuple[int, int]]:
    """What the steps sent, each for itself; the moments of an epoch are its begin, its steps, its end.

    A moment is in a hook, after which the workers meet.
    """
    steps = set()
    for epoch in range(EPOCHS):
        begin = epoch * (STEPS + 2)
        own = moments[begin : begin + STEPS + 1]
        sent = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(own)]
        steps |= {(collectives - MEETING[0], size - MEETING[1]) for collectives, size in sent}
    return steps


def test_a_step_sends_its_gradients_in_one_piece(sent):
    assert of_steps(sent["each step"]) == {(1, 4 * WEIGHTS)}


def test_workers_with_shares_of_other_sizes_send_the_same(sent):
    assert of_steps(sent["shares"]) == {(1, 4 * WEIGHTS + 4)}


def test_under_keras_fit_the_number_of_examples_goes_with_them(sent):
    assert of_steps(sent["Keras"]) == {(1, 4 * WEIGHTS + 4)}


def test_an_epoch_adds_its_metrics_and_that_all_go_on(sent):
    within = sent["epochs"]
    for begin, end in zip(within[::2], within[1::2], strict=True):
        # Between the begin and on_epoch_end(): the steps, and the metrics (a loss, an accuracy) once.
        sent = (STEPS + 1 + MEETING[0], STEPS * 4 * WEIGHTS + 16 + MEETING[1])
        assert (end[0] - begin[0], end[1] - begin[1]) == sent
    for end, begin in zip(within[1:-1:2], within[2::2], strict=True):
        assert end[0] + MEETING[0] == begin[0]  # which says, too: does one stop? was a loss no number?


def test_the_time_of_the_exchange_is_known(sent):
    exchange, training = sent["seconds"]
    assert 0 < exchange < training


def test_large_gradients_go_out_in_pieces(sent):
    assert of_steps(sent["large"]) == {(2, 4 * LARGE)}


@pytest.mark.parametrize("kind", ["table", "table with Adam"])
def test_of_a_table_only_the_rows_of_the_examples_are_sent(sent, kind):
    counts, row = 2 * 4, 4 * (16 + 1)  # of two workers; numbers and index
    steps = of_steps(sent[kind])
    assert {collectives for collectives, _ in steps} == {2}
    most = 4 * OF_TABLE + counts + 8 * 8 * row  # the worker's 8 examples have 8 rows each, some of them twice
    assert all(most - 16 * row <= sent <= most for _, sent in steps)


def test_as_bfloat16_the_gradients_are_half_as_many_bytes(sent):
    assert of_steps(sent["bfloat16"]) == {(1, 2 * WEIGHTS)}
    assert of_steps(sent["bfloat16 under Keras"]) == {(2, 2 * WEIGHTS + 4)}
    exact, rounded = sent["loss"]
    assert 0 < sent["weights"] < 1e-2
    assert rounded == pytest.approx(exact, abs=1e-3)
