"""`tfdistr test`: a real job, and what it says of it."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import tfdistr
from tfdistr.cli.script_options import Workers
from tfdistr.cli.self_test import judge, plan


def test_two_workers_are_well(start):
    process = start("test", "-n", "2")
    said, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    lines = said.splitlines()
    assert lines[:2] == [
        "Training on one worker of this machine ...", "Training on 2 workers of this machine ..."
    ]  # fmt: skip
    assert re.match(r"Workers: 2, on \S+$", lines[2])
    assert lines[3] in ("Gradients: MPI", "Gradients: TensorFlow's ring, by gRPC")
    assert re.match(r"Tuning: (no )?oneDNN\b.*\b\d+ threads?$", lines[4])
    assert re.match(r"Difference of the weights from those of one worker: \d\.\de-\d+ \(allowed", lines[5])
    assert lines[-1] == "All is well."


def fit(weights, workers=1, communication="none"):
    return SimpleNamespace(
        model=SimpleNamespace(get_weights=lambda: [np.array(weights)]), history={"loss": [1.0]},
        workers=[{"host": "a", "seconds": 1.5}] * workers,
        params={"communication": communication, "tuning": "oneDNN"},
    )  # fmt: skip


@pytest.mark.parametrize(("weights", "ok"), [([1.0, 2.0], True), ([1.0, 2.1], False), ([1.0, np.nan], False)])
def test_the_verdict(weights, ok):
    verdict = judge(fit([1.0, 2.0]), fit(weights, 2, "nccl"))
    assert verdict.ok == ok
    assert verdict.lines[1] == "Gradients: NCCL"
    assert verdict.lines[-1] == (
        "All is well."
        if ok
        else "Not well: the workers do not give the numbers of one. `tfdistr doctor` compares versions."
    )


def test_the_plan_of_a_test_on_hosts():
    (_, one), (words, many) = plan(Workers(hosts=["a", "b"], communication="mpi"))
    strategy = tfdistr.multi_worker_mirrored(communication="mpi")
    assert (one["cluster"].workers, one.get("strategy")) == (1, None)
    assert many["cluster"].workers == 2
    assert many == {**one, "cluster": many["cluster"], "strategy": strategy}
    assert words == "Training on 2 workers of the hosts ..."
