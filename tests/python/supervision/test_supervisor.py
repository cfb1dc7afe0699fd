"""Workers run to their end; whatever happens to one of them is said, and none is left."""

import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launched import CARRIERS, assert_output_comes, when_ready
from launched_job import Job

from tfdistr.clusters.local import local_cluster as local_cluster_module
from tfdistr.errors import CheckpointError, ClusterStartError
from tfdistr.network.ports import free_ports
from tfdistr.supervision import supervisor

pytestmark = pytest.mark.timeout(60)

#: A test of what holds as well for workers that start warm.
BOTH = pytest.mark.parametrize("job", CARRIERS, indirect=True)

HOST = socket.gethostname()


@BOTH
def test_a_job_that_ends_well(job: Job) -> None:
    statuses = job.run("finish", 3)
    assert [status.index for status in statuses] == [0, 1, 2]
    started = {event["worker"]: event["pid"] for event in job.of("started")}
    for status in statuses:
        assert (status.host, status.pid, status.status) == (HOST, started[status.index], "done")
        assert (status.exit_code, status.log) == (0, str(job.run_dir / "logs" / f"worker-{status.index}.log"))
        assert 0 < status.seconds < 30
        assert Path(status.log).exists()
    assert len(job.of("done")) == 3
    assert [(event["worker"], event["epoch"], event["step"]) for event in job.of("batch")] == [
        (0, epoch, step) for epoch in range(2) for step in range(1, 4)
    ]


@BOTH
def test_a_run_directory_can_be_used_again(job: Job) -> None:
    job.fail("finish,fail", 2)
    assert [status.status for status in job.run("finish", 2)] == ["done", "done"]
    assert len(job.of("failed")) == 1  # of the first run


def remove(run_dir: Path) -> None:
    shutil.rmtree(run_dir)


def rename(run_dir: Path) -> None:
    run_dir.rename(run_dir.with_name("other"))


def replace(run_dir: Path) -> None:
    other = run_dir.with_name("other")
    other.symlink_to(run_dir.parent)
    other.replace(run_dir)


def empty(run_dir: Path) -> None:
    shutil.rmtree(run_dir / "workers")


@pytest.mark.parametrize(
    ("act", "what"),
    [(remove, "it is gone"), (rename, "it is gone"), (replace, "another folder is in its place"),
     (empty, "files of the workers in it are gone")],
)  # fmt: skip
def test_a_run_directory_that_is_lost_is_named(job: Job, act: Callable[[Path], None], what: str) -> None:
    if act is replace:
        (real := job.run_dir.with_name("real")).mkdir(mode=0o700)
        job.run_dir.symlink_to(real)
    error = job.fail("wait", 2, look=when_ready(2, lambda: act(job.run_dir)))
    assert isinstance(error, CheckpointError)
    assert error.message == "The run directory was removed or renamed while the job ran."
    assert error.received in {f"{job.run_dir}: {what}", f"{job.run_dir}: files of the workers in it are gone"}
    assert str(error.fix).startswith("Run the job again")


def test_a_run_directory_that_a_worker_loses_as_it_exits_is_named(job: Job) -> None:
    assert isinstance(job.fail("wait,lose_run_dir", 2), CheckpointError)


@BOTH
def test_a_worker_whose_files_are_closed_reports_its_error(job: Job) -> None:
    error = job.fail("wait,fail_without_files", 2)
    assert error.worker == 1
    assert "failed: ValueError: bad loss" in error.message


@BOTH
def test_what_a_worker_started_ends_with_it(job: Job) -> None:
    job.run("grandchild", 2)
    assert len(job.of("grandchild")) == 2  # the fixture looks whether they are there
    assert job.fail("grandchild_of_killed,wait", 2).worker == 0


def test_processes_that_stay_when_all_are_done_are_ended(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "EXIT_TIMEOUT", 0.5)
    statuses = job.run("finish,done_but_stay", 2)
    assert [(status.status, status.exit_code) for status in statuses] == [
        ("done", 0),
        ("done", -signal.SIGTERM),
    ]


def test_follow_gives_the_lines_while_the_workers_run(job: Job) -> None:
    assert_output_comes(job, 2)
    log = (job.run_dir / "logs" / "worker-0.log").read_bytes()
    assert b"failed call to cuInit" in log  # of TensorFlow without a GPU, which is not shown


def test_without_follow_the_lines_stay_in_the_files(job: Job) -> None:
    job.fail("exit_3", 1)
    assert job.of("log") == []
    assert "there is no package" in (job.run_dir / "logs" / "worker-0.log").read_text()


def test_events_come_on_the_calling_thread(job: Job) -> None:
    threads = set()
    job.run("finish", 2, look=lambda _: threads.add(threading.get_ident()))
    assert threads == {threading.get_ident()}


def test_many_workers_are_looked_at_less_often() -> None:
    pauses = [supervisor.poll_interval(workers) for workers in (1, 64, 128, 1024)]
    assert pauses == [0.05, 0.05, 0.1, 0.8]


@BOTH
def test_an_exception_comes_with_its_traceback_and_the_others_are_stopped(job: Job) -> None:
    error = job.fail("wait,fail,wait", 4)
    (failed,) = job.of("failed")
    assert time.time() - failed["time"] < 10
    message = str(error)
    assert message.startswith(
        f"Worker 1 of 4 on {HOST} failed: ValueError: bad loss\n\nTraceback (most recent"
    )
    assert 'raise ValueError("bad loss")\nValueError: bad loss' in message
    assert message.endswith(f"\n\nIts log: {job.run_dir}/logs/worker-1.log")
    assert (error.worker, error.host, error.exit_code) == (1, HOST, 1)
    assert error.pid == next(event["pid"] for event in job.of("started") if event["worker"] == 1)
    assert error.traceback is not None
    assert error.traceback.endswith("ValueError: bad loss")
    assert error.log == f"{job.run_dir}/logs/worker-1.log"
    assert [status.status for status in error.workers] == ["stopped", "failed", "stopped", "stopped"]
    assert [status.exit_code for status in error.workers][2:] == [-signal.SIGTERM] * 2


@BOTH
def test_a_failure_counts_while_its_process_lives_on(job: Job) -> None:
    error = job.fail("wait,fail_and_live", 2)
    assert (error.worker, error.exit_code) == (1, None)
    assert "failed: ValueError: bad loss\n\nTraceback" in str(error)


def test_a_failure_in_r_comes_whole_with_its_call_stack(job: Job) -> None:
    message = str(job.fail("fail_in_r,wait", 2))
    assert message == (
        f"Worker 0 of 2 on {HOST} failed: simpleError: object 'y' not found\nin the loss\n\n"
        f"1. model()\n2. loss(y)\n\nIts log: {job.run_dir}/logs/worker-0.log"
    )


LAST_LINES = "\n".join(f"  line {number}" for number in range(11, 30))


@BOTH
@pytest.mark.parametrize(
    ("behaviours", "said", "code", "fix"),
    [
        ("wait,kill", "was killed by SIGKILL (often: out of memory).\n\nIts last output:\n  reading the data",
         -signal.SIGKILL,
         "Give the job more memory: fewer workers, or smaller batches. The system's log (dmesg) shows "
         "whether memory was the reason."),
        ("finish,segfault", "was killed by SIGSEGV.", -signal.SIGSEGV, None),
        ("finish,realtime_signal", f"was killed by signal {signal.SIGRTMIN + 3}.", -(signal.SIGRTMIN + 3),
         None),
        ("finish,abort_late", "was killed by SIGABRT after its work was done, while it exited.",
         -signal.SIGABRT, None),
        ("wait,exit_3",
         "failed: it exited with status 3 without an error message.\n\nIts last output:\n"
         f"{LAST_LINES}\n  there is no package called 'tfdistr'", 3, None),
        ("wait,leave", "exited with status 0 before its work was done.", 0,
         "Remove os._exit(), sys.exit() and quit() from the functions that you passed."),
    ],
)  # fmt: skip
def test_a_worker_that_ends_without_a_report(
    job: Job, behaviours: str, said: str, code: int, fix: str | None
) -> None:
    error = job.fail(behaviours, 2)
    assert error.message == f"Worker 1 of 2 on {HOST} {said}\n\nIts log: {job.run_dir}/logs/worker-1.log"
    assert (error.worker, error.exit_code, error.traceback, error.fix) == (1, code, None, fix)


@BOTH
def test_a_worker_that_ignores_sigterm_is_ended(job: Job) -> None:
    error = job.fail("fail_late,ignore_sigterm,ignore_sigterm", 3)
    (failed,) = job.of("failed")
    assert time.time() - failed["time"] < 10
    assert error.worker == 0
    assert [status.exit_code for status in error.workers][1:] == [-9, -9]


@BOTH
def test_a_halted_worker_is_ended_and_named(job: Job) -> None:
    error = job.fail("lose_peer,halt,lose_peer", 3)
    assert str(error) == (
        f"Worker 1 of 3 on {HOST} was stopped (SIGSTOP, or a debugger), and the others lost it.\n\n"
        f"Its log: {job.run_dir}/logs/worker-1.log\nFix: Do not stop workers while the job runs."
    )
    assert error.workers[1].exit_code == -9


@BOTH
def test_a_worker_that_is_halted_while_the_others_only_wait(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "STOP_TIMEOUT", 0.5)
    error = job.fail("wait,halt,wait", 3)
    stopped = f"Worker 1 of 3 on {HOST} was stopped (SIGSTOP, or a debugger), and the others"
    assert str(error).startswith(stopped)
    assert [status.status for status in error.workers] == ["stopped", "failed", "stopped"]


@BOTH
def test_a_worker_that_is_not_ready_in_time(job: Job) -> None:
    with pytest.raises(ClusterStartError, match="Not all workers were ready within 8 s of their") as caught:
        job.run("wait,never_ready", 2, start_timeout=8)  # worker 0 is ready long before
    log = job.run_dir / "logs" / "worker-1.log"
    assert caught.value.received == f"1 of 2 workers were not: worker 1 (log: {log})"
    assert (caught.value.worker, bool(caught.value.host)) == (1, True)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """A function that makes the launcher choose, so many times, a port on which somebody listens."""
    with socket.socket() as server:
        server.bind(("", free_ports(1)[0]))
        server.listen()

        def choose(times: int) -> None:
            answers = [[server.getsockname()[1], *free_ports(1)] for _ in range(times)]
            monkeypatch.setattr(
                local_cluster_module, "free_ports", lambda n: answers.pop() if answers else free_ports(n)
            )

        yield choose


def test_a_taken_port_is_replaced(job: Job, taken: Callable[[int], None]) -> None:
    taken(2)
    assert [status.status for status in job.run("listen", 2)] == ["done", "done"]
    assert [(event["worker"], event["reason"]) for event in job.of("restart")] == [(0, "port in use")] * 2
    assert len([event for event in job.of("started") if event["worker"] == 0]) == 3
    assert {path.name for path in (job.run_dir / "logs").iterdir()} == {
        f"worker-{index}.log{attempt}" for index in (0, 1) for attempt in ("", ".1", ".2")
    }


def test_a_port_that_is_taken_each_time_is_an_error(
    job: Job, taken: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken(9)
    monkeypatch.setattr(supervisor, "PORT_RETRIES", 2)
    message = str(job.fail("listen", 2))
    assert message.startswith(f"Worker 0 of 2 on {HOST} failed: ClusterStartError: Cannot listen on the port")
    assert "Received: worker 0: another process listens on its port" in message
    fix = "Free some ports: the workers were started 3 times, each time on other ports."
    assert message.endswith(f"\nFix: {fix}")


@BOTH
def test_an_error_in_on_event_ends_the_workers(job: Job) -> None:
    def look(event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            raise ZeroDivisionError("in the display")

    with pytest.raises(ZeroDivisionError, match="in the display"):
        job.run("wait", 2, look=look)
