"""When workers are started again, with how many, and when not: without TensorFlow."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paths import WORKERS

from tfdistr.checkpoint.folder import Checkpoint, CheckpointFolder, Position, checkpoint_folder, checkpoints
from tfdistr.clusters.backend import Backend
from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.data.form import Form
from tfdistr.errors import ClusterStartError, JobStoppedError, WorkerFailedError
from tfdistr.jobs import on_cluster, restarts
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.restarts import Restarts
from tfdistr.jobs.resume import result_of_run
from tfdistr.jobs.strategies import MultiWorkerMirrored
from tfdistr.supervision.supervisor import WorkerStatus, run_workers
from tfdistr.training.job import Job
from tfdistr.training.recovery_options import Recovery
from tfdistr.utils.function_files import FunctionByName

WORKER = WORKERS / "worker.py"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """That of a job with checkpoints which has just begun."""
    (tmp_path / "run.json").write_text(json.dumps({"id": "this"}))
    checkpoint_folder(tmp_path).mkdir()
    return tmp_path


@pytest.fixture
def signals() -> Iterator[list[int]]:
    """The SIGTERMs that this process has got from where the job does not look out for them."""
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    yield seen
    signal.signal(signal.SIGTERM, before)


def save(folder: CheckpointFolder, epoch: int, step: int = 0) -> Path:
    return folder.save(Checkpoint("this", Position(epoch, step), 0, {"workers": 1}, {"a": np.arange(9)}))


def test_restarts_count_from_the_last_progress(run_dir):
    folder = checkpoints(run_dir)
    counted = Restarts(run_dir, 2)
    assert [counted.another(), counted.another(), counted.another()] == [True, True, False]
    counted = Restarts(run_dir, 1)
    for step in range(3):
        save(folder, 0, step)
        assert counted.another()
    assert not counted.another()
    assert not Restarts(run_dir, 0).another()


def test_what_is_done_after_torn_checkpoints_is_kept_and_counts(run_dir, caplog):
    folder = checkpoints(run_dir)
    for epoch in (3, 4):
        path = save(folder, epoch)
        path.write_bytes(path.read_bytes()[:-1])
    counted = Restarts(run_dir, 1)
    assert counted.position is None
    assert not caplog.records  # the chief says it
    for epoch in (1, 2, 3):
        save(folder, epoch)
        assert folder.newest().position == counted.position == (epoch, 0)
        assert counted.another()
    assert folder.positions() == [(2, 0), (3, 0)]
    assert not counted.another()


def test_a_job_without_checkpoints_has_restarts(tmp_path):
    counted = Restarts(tmp_path, 1)
    assert counted.position is None
    assert [counted.another(), counted.another()] == [True, False]


WORKER_FAILED = WorkerFailedError("Worker 1 was killed.", worker=1, host="a")


def not_started(worker: int | None = None) -> ClusterStartError:
    error = ClusterStartError("Every worker must be ready.")
    error.worker, error.host = worker, "b"
    return error


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch, run_dir: Path) -> Callable[..., Any]:
    """Fits with three workers, of which each attempt ends with an error, or does something and ends well."""

    def run(*attempts: Any, **recovery: Any) -> tuple[Any, list[dict[str, Any]]]:
        events: list[dict[str, Any]] = []
        left = list(attempts)

        def attempt(cluster: Any, command: Any, folder: Any, on_event: Any, **options: Any) -> Any:
            does = left.pop(0)
            if isinstance(does, Exception):
                raise does
            does(on_event)
            return [WorkerStatus(i, "a", 1, "done", 1.0, "log", 0) for i in range(cluster.workers)]

        monkeypatch.setattr(restarts, "run_workers", attempt)
        trained = {"communication": "ring", "tuning": "oneDNN", "differences": [], "xla": "nothing"}
        trained |= {"history": {"loss": [1.0]}, "form": Form()}
        monkeypatch.setattr(on_cluster, "load_training", lambda folder: trained)
        model, data = FunctionByName("model"), FunctionByName("data")
        job = Job(model, data, communication="ring", recovery=Recovery(every="epoch", **recovery))
        fitted = on_cluster.fit_on_cluster(
            job, MultiWorkerMirrored, Backend("ring", local_cluster(3), ""), Caller(events.append), run_dir
        )
        assert not left
        return fitted, events

    return run


def nothing(on_event: Any) -> None:
    pass


def told(on_event: Any) -> None:
    signal.raise_signal(signal.SIGTERM)


def told_and_lost(on_event: Any) -> None:
    told(on_event)
    raise WORKER_FAILED


def test_workers_that_cannot_be_started_are_not_started_again(fit):
    with pytest.raises(ClusterStartError):
        fit(not_started(2), max_restarts=2, min_workers=1)


def test_a_restart_that_fails_counts_as_one(fit):
    fitted, events = fit(WORKER_FAILED, not_started(), nothing, max_restarts=2)
    assert len(fitted.workers) == 3
    assert [event["reason"] for event in events] == ["Worker 1 was killed", "Every worker must be ready"]
    with pytest.raises(ClusterStartError):
        fit(WORKER_FAILED, not_started(), max_restarts=1)


def test_a_worker_that_does_not_come_again_is_lost(fit):
    fitted, events = fit(WORKER_FAILED, not_started(2), nothing, max_restarts=1, min_workers=2)
    assert len(fitted.workers) == fitted.params["workers"] == 2
    said = [event["message"] for event in events if event["event"] == "warning"]
    assert said == ["The job continues without worker 2 on b, with 2 of its workers."]
    with pytest.raises(ClusterStartError):
        fit(WORKER_FAILED, not_started(None), max_restarts=1, min_workers=2)


def test_the_error_names_no_worker_if_none_was_ready(tmp_path):
    command = [sys.executable, str(WORKER), "never_ready"]
    with pytest.raises(ClusterStartError) as caught:
        run_workers(local_cluster(2, start_timeout=1, warm=False), command, tmp_path)
    assert caught.value.worker is None


def test_workers_are_not_started_again_by_a_launcher_that_was_told_to_end(fit, run_dir, signals):
    fix = f"Fix: Repeat the call with run_dir={str(run_dir)!r} and resume=True."
    with pytest.raises(JobStoppedError) as caught:
        fit(told_and_lost, max_restarts=3)
    first = "The job was preempted (SIGTERM) before its first checkpoint."
    assert str(caught.value).splitlines() == [first, fix]
    save(checkpoints(run_dir), 2, 7)
    with pytest.raises(JobStoppedError) as caught:
        fit(told_and_lost, max_restarts=3)
    first = "The job was preempted (SIGTERM) and saved a checkpoint at epoch 3, step 7."
    assert str(caught.value).splitlines() == [first, fix]
    assert signals == []


def test_a_launcher_that_is_told_to_end_too_late_has_the_result_and_then_the_signal(fit, run_dir, signals):
    fitted, _ = fit(told)
    assert fitted.history == {"loss": [1.0]}
    assert len(result_of_run(run_dir, epochs=1)["workers"]) == 3
    assert signals == [signal.SIGTERM]


@pytest.mark.parametrize("first", ["told", "unsaved"])
def test_a_launcher_whose_workers_have_no_checkpoints_gets_the_signal(fit, signals, first):
    def run(on_event: Any) -> None:
        for what in (first, "unsaved" if first == "told" else "told"):
            assert signals == []
            if what == "told":
                told(on_event)
            else:
                on_event({"event": "unsaved", "worker": 0, "time": 0.0})
        assert signals == [signal.SIGTERM]

    fit(run, max_restarts=1)
    assert signals == [signal.SIGTERM]


def test_the_error_names_the_run_directory_of_the_launcher(tmp_path):
    program = (
        "import os, sys; from tfdistr.supervision.events import EventWriter;"
        "e = EventWriter(sys.argv[1], sys.argv[2]);"
        "e.write('ready'); e.write('stopped', message='Told to end.', fix='Go home.'); os._exit(75)"
    )
    with pytest.raises(JobStoppedError) as caught:
        run_workers(local_cluster(2), [sys.executable, "-c", program], tmp_path)
    fix = f"Fix: Repeat the call with run_dir={str(tmp_path)!r} and resume=True."
    assert str(caught.value).splitlines() == ["Told to end.", fix]
