"""Workers that are killed, stopped and told to end: the job continues, and ends as if nothing had been."""

import contextlib
import json
import os
import re
import runpy
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from clusters import PROGRAMS, Ended, Processes, run_cluster
from launched import processes_of, wait_for
from warm import Process

from tfdistr.checkpoint.folder import CheckpointFolder, checkpoint_folder
from tfdistr.supervision.events import EventReader


@pytest.fixture
def start_job(tmp_path: Path, processes: Processes) -> Callable[..., Process]:
    """A function that starts a job in the folder of the test."""
    program = [sys.executable, str(PROGRAMS / "recovery_job.py"), str(tmp_path)]
    return lambda *arguments: processes.start(*program, *arguments)


def until_a_checkpoint(folder: Path, process: Process) -> None:
    """Wait until there is a checkpoint that was not there before."""
    kept = CheckpointFolder(checkpoint_folder(folder))
    before = set(kept.positions())
    end = time.monotonic() + 150
    while not set(kept.positions()) - before:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "no checkpoint"
        time.sleep(0.01)


@pytest.mark.timeout(600)
@pytest.mark.slow(reason="trains on workers again and again")
def test_a_worker_and_then_the_launcher_are_told_to_end(tmp_path, start_job):
    """Of a job by the ring, which then continues by MPI, and the other way round."""
    for told, communication in (("a worker", "ring"), ("the launcher", "mpi")):
        job = start_job(communication)
        until_a_checkpoint(tmp_path, job)
        events = EventReader(tmp_path, 2).poll()
        started = [event["pid"] for event in events if event["event"] == "started"]
        os.kill(started[1] if told == "a worker" else job.pid, signal.SIGTERM)
        output, _ = job.communicate(timeout=60)
        assert job.returncode == 75, output
        assert not any(Path(f"/proc/{pid}").exists() for pid in started)
        kinds = [event["event"] for event in EventReader(tmp_path, 2).poll()]
        assert kinds.count("stopped") == 2
        said = " ".join(output.split())
        assert "The job was preempted (SIGTERM) and saved a checkpoint at epoch" in said
        assert f"Fix: Repeat the call with run_dir='{tmp_path}' and resume=True." in said
    job = start_job("ring")
    output, _ = job.communicate(timeout=200)
    assert job.returncode == 0, output
    check_equals_one_process(tmp_path)


@pytest.mark.slow(reason="trains on workers again and again")
@pytest.mark.timeout(300)
def test_all_processes_are_told_to_end_while_a_step_takes_long(tmp_path, start_job):
    """As Slurm does: the launcher and what stands between it and the workers get SIGTERM, too."""
    job = start_job("mpi", "slow")
    assert wait_for(lambda: len(list(tmp_path.glob("slow-*"))) == 2 or job.poll() is not None, 150)
    told = processes_of(tmp_path)
    for pid in told:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    output, _ = job.communicate(timeout=60)
    assert job.returncode == 75, output
    assert re.search(r"saved a checkpoint at epoch 2, step [1-9]", " ".join(output.split()))
    assert [event["event"] for event in EventReader(tmp_path, 2).poll()].count("stopped") == 2
    assert wait_for(lambda: not processes_of(tmp_path), 10)


@pytest.mark.timeout(300)
def test_a_job_without_checkpoints_ends_at_once_when_it_is_told_to(tmp_path, start_job):
    job = start_job("ring", "unsaved")
    reader, events = EventReader(tmp_path, 2), []
    end = time.monotonic() + 150
    while sum(event["event"] == "epoch_end" for event in events) < 2:
        assert job.poll() is None, job.communicate()[0]
        assert time.monotonic() < end, "no epoch"
        events += reader.poll()
        time.sleep(0.05)
    job.terminate()
    output, _ = job.communicate(timeout=30)
    assert job.returncode == -signal.SIGTERM, output
    said = "Warning: There are no checkpoints of a model with its own fit(): each restart trains from the "
    assert said + "start." in " ".join(output.split())
    pids = [event["pid"] for event in events if event["event"] == "started"]
    end = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, "a worker is left"
        time.sleep(0.05)


def check_equals_one_process(folder: Path) -> None:
    """Compare with a training in this process, which rounds otherwise than two workers."""
    expected = runpy.run_path(str(PROGRAMS / "recovery_job.py"))["train"](run_dir=folder / "here")
    with np.load(folder / "found.npz") as found:
        np.testing.assert_allclose(found["loss"], expected.history["loss"], rtol=0, atol=1e-5)
        for number, weight in enumerate(expected.model.get_weights()):
            np.testing.assert_allclose(found[f"arr_{number}"], weight, rtol=0, atol=1e-5)


def by_hand(what: str, folder: Path) -> list[Ended]:
    return run_cluster("recovery_by_hand.py", 2, [what, str(folder)], timeout=150)


@pytest.mark.slow(reason="trains on workers again and again")
@pytest.mark.timeout(600)
def test_workers_that_were_started_by_hand_go_on_from_the_chiefs_checkpoint(tmp_path):
    told = by_hand("told", tmp_path / "run")
    assert [worker.status for worker in told] == [75, 75], told[0].output[-3000:]
    fixes = [re.search(r"Fix: Repeat the call .*", worker.output)[0] for worker in told]
    assert fixes == [
        f"Fix: Repeat the call with run_dir='{tmp_path / 'run' / '0'}' and resume=True.",
        "Fix: Repeat the call with resume=True.",
    ]
    assert os.listdir(tmp_path / "run") == ["0"]  # the other's folder is not needed
    assert CheckpointFolder(checkpoint_folder(tmp_path / "run" / "0")).positions()
    resumed, full = by_hand("resume", tmp_path / "run"), by_hand("train", tmp_path / "full")
    for mine, other in zip(resumed, full, strict=True):
        digests = [re.search(r"trained: (\w+)", worker.output) for worker in (mine, other)]
        assert all(digests), mine.output[-3000:]
        assert digests[0][1] == digests[1][1]


def test_workers_that_begin_with_other_weights_are_refused(tmp_path):
    for worker in by_hand("noise", tmp_path):
        refused = re.search(r"refused: (.*)", worker.output)
        assert refused, worker.output[-3000:]
        assert json.loads(refused[1]).splitlines() == [
            "The workers start with different weights.",
            "Received: other weights than those of worker 0 on worker 1",
            "Fix: Remove code that changes weights before training on some workers only, such as a callback.",
        ]
