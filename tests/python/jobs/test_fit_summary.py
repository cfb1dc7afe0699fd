"""The summary of a fit: its line about the time, its table of workers, and its bottleneck."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tfdistr.errors import ArgumentError
from tfdistr.jobs.fit_summary import bottleneck_of, time_line, times_of
from tfdistr.jobs.result import FitResult
from tfdistr.jobs.values_for_r import fit_for_r
from tfdistr.training.step_times import PARTS

ZERO = dict.fromkeys(PARTS, 0.0)


def rows(*workers: dict[str, float]) -> list[dict[str, object]]:
    """The times of workers of 100 seconds each; the rest is computing."""
    made = [{**ZERO, **parts} for parts in workers]
    return times_of(
        {"index": index, "times": {**parts, "computing": 100.0 - sum(parts.values())}}
        for index, parts in enumerate(made)
    )


def result(workers: list[dict[str, object]]) -> FitResult:
    params = {"workers": 2, "batch_size": 64, "seed": 1, "initial_epoch": 0, "validation_freq": 1}
    return FitResult({"loss": [0.5]}, params, workers, None, SimpleNamespace())


MEASURED = {
    "computing": 8.733, "waiting_for_peers": 1.107, "exchanging": 1.476, "waiting_for_data": 0.369,
    "checkpoints": 0.123, "callbacks": 0.0, "start": 0.492,
}  # fmt: skip


def test_the_line_is_about_all_workers():
    workers = rows({"exchanging": 10.0}, {"exchanging": 30.0})
    workers[1]["start"] = 20.0  # 120 seconds in all
    assert time_line(workers) == "Time: 120.0 s: computing 74 %, exchanging 18 %, start 8 %"


def test_a_result_without_times_has_no_line_and_no_table():
    fit = result([{"index": 0}, {"index": 1, "times": {}}])
    assert str(fit) == str(fit.summary()) == "\n".join(
        ["Trained on 2 workers, 1 epoch, global batch 64, seed 1", "  loss: 0.5000"]
    )  # fmt: skip
    assert fit.summary().bottleneck is None
    with pytest.raises(ArgumentError, match="no worker has measured its time"):
        fit.summary().plot()


def test_the_plot_has_a_bar_of_parts_for_each_worker():
    summary = result([{"index": 0, "times": MEASURED}, {"index": 1, "times": {"computing": 5.0}}]).summary()
    (panel,) = summary.plot().axes
    bars = [[(bar.get_x(), bar.get_width()) for bar in part] for part in panel.containers]
    assert len(bars) == len(MEASURED)
    assert np.allclose(bars[:2], [[(0.0, 8.733), (0.0, 5.0)], [(8.733, 1.107), (5.0, 0.0)]])


def test_the_summary_has_a_table_of_the_workers():
    ring = {"computing": 30.0, "exchanging": 8.0, "waiting_for_data": 0.0, "start": 2.0}
    server = {"index": 2, "task": "ps 0"}
    fit = result([{"index": 0, "times": ring}, {"index": 1, "times": {**ring, "start": 60.0}}, server])
    assert (
        str(fit.summary())
        == repr(fit.summary())
        == """\
Trained on 2 workers, 1 epoch, global batch 64, seed 1
  loss: 0.5000

worker  seconds  computing  exchanging  waiting for data  start
     0     40.0       75 %        20 %               0 %    5 %
     1     98.0       31 %         8 %               0 %   61 %

Bottleneck: start. Workers spent 33 % of the time before the first step was done; this share falls with the \
length of the training."""
    )
    assert fit.summary().times == [{"index": 0, **ring}, {"index": 1, **ring, "start": 60.0}]


@pytest.mark.parametrize(
    ("workers", "sentence"),
    [
        ([{"waiting_for_data": 31.0, "start": 20.0}], "data. The worker waited 31 % of the time for "),
        ([{"waiting_for_data": 31.0}] * 2, "data. Workers waited 31 % of the time for batches; "),
        ([{"checkpoints": 40.0}], "checkpoints. The worker spent 40 % of the time on checkpoints; "),
        ([{"callbacks": 40.0, "checkpoints": 30.0}], "callbacks. The worker spent 40 % of the time in "),
        ([{"start": 60.0}], "start. The worker spent 60 % of the time before the first step was done; "),
        ([{"waiting_for_data": 4.0}], "none. The worker computed for 96 % of the time."),
        (
            [{"exchanging": 20.0, "waiting_for_peers": 10.0}, {"exchanging": 22.0, "waiting_for_peers": 8.0}],
            "communication. Workers spent 30 % of the time exchanging with each other; ",
        ),
        (
            [{"waiting_for_peers": 40.0}, {"waiting_for_data": 50.0, "waiting_for_peers": 1.0}],
            "worker 1. The others waited for it for 40 % of the time. It waited for batches for 50 % of the "
            "time, and the others for 0 %: ",
        ),
        (
            [{"checkpoints": 30.0}, {"waiting_for_peers": 30.0}, {"waiting_for_peers": 28.0}],
            "worker 0. The others waited for it for 29 % of the time. It spent 30 % of the time on "
            "checkpoints, and the others 0 %: ",
        ),
        (
            [{"waiting_for_peers": 5.0}, {"waiting_for_peers": 35.0}],
            "worker 0. The others waited for it for 35 % of the time. It computed for 95 % of the time, and "
            "the others for 65 %: ",
        ),
    ],
)
def test_one_sentence_names_the_bottleneck(workers, sentence):
    found = bottleneck_of(rows(*workers))
    assert found.startswith(f"Bottleneck: {sentence}")
    assert "\n" not in found


def test_with_the_ring_a_slow_worker_is_the_one_that_exchanges_least():
    times = rows({"exchanging": 45.0}, {"exchanging": 5.0, "waiting_for_data": 40.0})
    for row in times:
        del row["waiting_for_peers"]
    assert bottleneck_of(times).startswith(
        "Bottleneck: worker 1. The others waited for it for 40 % of the time. It waited for batches for 40 %"
    )


def test_r_gets_the_times_beside_its_data_frame_of_workers():
    row = {"host": "here", "pid": 1, "status": "done", "seconds": 100.0, "log": None}
    parts = {"computing": 60.0, "waiting_for_peers": 0.0, "exchanging": 40.0}
    made = fit_for_r(result([{"index": 0, **row, "times": parts}, {"index": 1, **row}]))
    assert "times" not in made["workers"]
    assert made["times"] == {"index": [0], **{name: [seconds] for name, seconds in parts.items()}}
    assert made["text"][-1] == "Time: 100.0 s: computing 60 %, exchanging 40 %"
    assert made["bottleneck"].endswith(
        'take larger batches, multi_worker_mirrored(gradient_dtype = "bfloat16"), or fewer workers.'
    )
    assert made["time_lines"][-1] == made["bottleneck"]
    assert made["time_lines"][1].split() == [
        "worker", "seconds", "computing", "waiting", "for", "peers", "exchanging"
    ]  # fmt: skip
    made = fit_for_r(result([{"index": 0, **row}]))
    assert (made["times"], made["time_lines"], made["bottleneck"]) == ({}, [], None)
