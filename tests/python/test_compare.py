"""Strategies side by side: what is measured, and what is said where it cannot be."""

import json
import math

import numpy as np
import pytest

import tfdistr
from tfdistr import compare
from tfdistr.errors import ArgumentError
from tfdistr.jobs.result import FitResult

pytestmark = pytest.mark.timeout(240)

X = np.ones((40, 3), "float32")
Y = np.ones((40, 1), "float32")


def model():
    import os

    import keras

    import tfdistr

    if "FAILS_WITH_TWO" in os.environ and tfdistr.num_workers() == 2:
        raise ValueError("not with two")
    network = keras.Sequential([keras.layers.Dense(1)])
    network.compile("sgd", "mse")
    return network


@pytest.fixture(scope="module")
def compared():
    return tfdistr.compare_strategies(
        model, X, Y, workers=[2, 1], epochs=3, batch_size=16, seed=1,
        env={"FAILS_WITH_TWO": "1"},
        strategies=[
            tfdistr.one_device(device="cpu:0"), tfdistr.multi_worker_mirrored(communication="mpi"),
        ],
    )  # fmt: skip


def test_each_strategy_is_tried_with_each_number_of_workers(compared):
    tried = [(row.strategy, row.workers) for row in compared.rows]
    assert tried == [("one_device", 1), ("multi_worker_mirrored", 1), ("multi_worker_mirrored", 2)]


def test_what_is_measured(compared):
    one, other, _ = compared.rows
    assert one.loss == pytest.approx(other.loss, abs=1e-6)
    for row in (one, other):
        assert row.error is None
        assert row.seconds_per_epoch * row.examples_per_second == pytest.approx(40)


def test_a_run_that_failed_has_its_error(compared):
    failed = compared.rows[2]
    assert (failed.seconds_per_epoch, failed.examples_per_second, failed.loss) == (None, None, None)
    assert failed.error.startswith("Worker ")
    assert "ValueError: not with two" in failed.error


def test_the_table(compared):
    lines = str(compared).splitlines()
    assert lines[0].split() == ["strategy", "workers", "s/epoch", "examples/s", "loss"]
    assert lines[1].split()[:2] == ["one_device", "1"]
    assert lines[3].split()[:5] == ["multi_worker_mirrored", "2", "-", "-", "-"]
    assert lines[3].endswith("ValueError: not with two")


def test_the_frame_and_the_plot(compared):
    frame = compared.to_frame()
    assert list(frame.columns) == list(compare.COLUMNS)
    assert math.isnan(frame["loss"][2])
    panel = compared.plot().axes[0]
    assert [bar.get_width() for bar in panel.patches][2] == 0
    assert panel.get_xlabel() == "examples per second"


def events(folder, worker: int, seconds: list[float], examples: int | None) -> None:
    own = folder / "workers" / str(worker)
    own.mkdir(parents=True)
    lines = [{"event": "train_begin", "time": 0, "examples": examples}]
    lines += [
        {"event": "epoch_end", "time": 1 + epoch, "epoch": epoch, "seconds": each, "metrics": {}}
        for epoch, each in enumerate(seconds)
    ]
    (own / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("first", "second", "examples", "per_epoch", "per_second"),
    [
        ([9.0, 2.0, 4.0, 3.0], [9.0, 2.5, 1.0, 1.0], 100, 3.0, 100 / 3),  # 2.5, 4 and 3: the slower's
        ([9.0], [8.0], 18, 9.0, 2.0),  # a callback has stopped it
        ([9.0, 2.0], [9.0, 2.0], None, 2.0, None),
    ],
)
def test_the_slowest_worker_counts_and_the_first_epoch_does_not(
    tmp_path, first, second, examples, per_epoch, per_second
):
    events(tmp_path, 0, first, examples)
    events(tmp_path, 1, second, examples)
    fit = FitResult({"loss": [0.5, 0.25]}, {}, [{}, {}], str(tmp_path), None)
    assert compare.speed_of(fit) == (per_epoch, per_second)


REFUSED = [
    ({"epochs": 1}, "`epochs` must be a whole number of at least 2.", "1"),
    ({"strategies": ["central"]}, "`strategy` must be one of ", "'central'"),
    ({"strategies": {"one_device": None}}, "`strategies` and `workers` must each be a value, or a list",
     "strategies={'one_device': None}, workers=2"),
    ({"workers": [1, 0]}, "`workers` must be a whole number of at least 1.", "0"),
    ({"strategies": []}, "`strategies` and `workers` must each be a value, or a list",
     "strategies=[], workers=2"),
    ({"cluster": None, "run_dir": "x"}, "compare_strategies() chooses the strategy, the cluster and the "
     "folder of each run itself.", "cluster, run_dir"),
]  # fmt: skip


@pytest.mark.parametrize(("differing", "message", "received"), REFUSED)
def test_what_is_refused(differing, message, received):
    with pytest.raises(ArgumentError) as caught:
        tfdistr.compare_strategies(model, X, Y, **differing)
    assert caught.value.message.startswith(message)
    assert caught.value.received == received
