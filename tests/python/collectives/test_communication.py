"""What the result says has carried the gradients: what was used, whatever was asked for."""

import sys

import pytest
from clusters import NO_GPU, PROGRAMS, run_cluster

import tfdistr
from tfdistr.errors import JobMismatchError

sys.path.insert(0, str(PROGRAMS))
from communication import X, model

pytestmark = pytest.mark.timeout(240)


def fit(**options: object) -> tfdistr.FitResult:
    return tfdistr.distributed_fit(model, X, X[:, :1], batch_size=8, seed=1, verbose=0, **options)


@pytest.mark.parametrize(
    "strategy", [tfdistr.multi_worker_mirrored(communication="nccl"), tfdistr.mirrored(devices=["cpu:0"])]
)
def test_one_process_alone_has_nobody_to_talk_to(strategy, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "")
    assert fit(strategy=strategy).params["communication"] == "none"


def test_workers_are_still_compared_by_what_they_were_asked_for():
    ended = run_cluster("communication.py", 2, ["ring"], ["nccl"])
    for process in ended:
        assert process.status != 0
        assert JobMismatchError.__name__ in process.output
        assert "communication" in process.output


def test_a_complete_run_that_is_taken_up_says_what_it_had_used(tmp_path):
    cluster = tfdistr.local_cluster(2, env=NO_GPU)
    options = {"cluster": cluster, "run_dir": tmp_path / "run", "checkpoint_every": "epoch"}
    first = fit(strategy=tfdistr.multi_worker_mirrored(communication="nccl"), **options)
    again = fit(strategy=tfdistr.multi_worker_mirrored(communication="mpi"), resume=True, **options)
    assert [result.params["communication"] for result in (first, again)] == ["ring", "ring"]
