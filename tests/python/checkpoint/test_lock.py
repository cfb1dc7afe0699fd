"""The lock of a run directory: held, left by a killed process, and on a file system of several machines."""

import contextlib
import errno
import fcntl
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tfdistr.checkpoint import lock as module
from tfdistr.checkpoint.folder import Checkpoint, CheckpointFolder, Position
from tfdistr.checkpoint.lock import LOCK, RunLock, check_lock, is_in_use, lock_id, lock_variable
from tfdistr.errors import ArgumentError, CheckpointError

HOLD = """
import os, sys, time
from pathlib import Path
from tfdistr.checkpoint.lock import RunLock
lock = RunLock(Path(sys.argv[1]), 1.0, elsewhere="elsewhere" in sys.argv)
lock.acquire()
child = os.fork() if "fork" in sys.argv else None
if child is None:
    print("held", flush=True)
elif child == 0:  # only now it has closed its copies
    Path(sys.argv[1], "child").write_text(str(os.getpid()))
    print("held", flush=True)
time.sleep(60)
"""


@contextlib.contextmanager
def holder(folder: Path, *how: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    command = [sys.executable, "-c", HOLD, str(folder), *how]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline()  # it has the lock
        yield process
    finally:
        process.kill()
        process.communicate()


def foreign(folder: Path, **different: Any) -> dict[str, Any]:
    """The lease of a process on another machine, whose lock this file system does not pass on."""
    lease = {
        "id": "other", "process": 7, "host": "far", "boot": "another", "since": "2026-01-01 10:00:00+00:00",
        "elsewhere": False, "wait": 0.6, "beat": 3, **different,
    }  # fmt: skip
    (folder / LOCK).write_text(json.dumps(lease))
    return lease


def seconds_to_acquire(folder: Path) -> float:
    began = time.monotonic()
    with RunLock(folder):
        return time.monotonic() - began


def test_a_lock_is_private_and_goes_with_its_job(tmp_path):
    with RunLock(tmp_path):
        assert (tmp_path / LOCK).stat().st_mode & 0o777 == 0o600
        assert os.listdir(tmp_path) == [LOCK]
        assert is_in_use(tmp_path)
    assert os.listdir(tmp_path) == []
    assert not is_in_use(tmp_path)
    assert seconds_to_acquire(tmp_path) < 0.5


def test_the_second_job_of_a_process_is_refused(tmp_path):
    with RunLock(tmp_path):
        with pytest.raises(ArgumentError, match="Only one job at a time") as caught:
            RunLock(tmp_path).acquire()
        assert re.fullmatch(
            rf"{tmp_path}, which another job uses \(process {os.getpid()} on \S+, since "
            r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+\d\d:\d\d\)",
            caught.value.received,
        )
        assert caught.value.fix == "Stop one of the two jobs, or pass another `run_dir`."
        assert is_in_use(tmp_path)  # the refused job has not released it


def test_another_process_holds_it_also_while_it_is_stopped(tmp_path):
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        time.sleep(1.5)  # longer than its lease is valid: on one machine the system's lock decides
        with pytest.raises(ArgumentError, match=f"process {process.pid} on "):
            RunLock(tmp_path).acquire()


@pytest.mark.parametrize("how", [(), ("fork",)], ids=["alone", "its child lives on"])
def test_a_killed_holder_leaves_a_lock_that_is_free_at_once(tmp_path, how):
    with holder(tmp_path, *how) as process:
        try:
            assert is_in_use(tmp_path)
            process.kill()
            process.wait()
            assert (tmp_path / LOCK).exists()
            assert not is_in_use(tmp_path)
            assert seconds_to_acquire(tmp_path) < 0.5
        finally:
            if how:
                os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)
    assert not (tmp_path / LOCK).exists()


def test_a_forked_child_does_not_release_it(tmp_path):
    with RunLock(tmp_path) as lock:
        child = os.fork()
        if child == 0:
            lock.release()
            os._exit(0)
        os.waitpid(child, 0)
        assert is_in_use(tmp_path)
        check_lock(tmp_path, lock.id)


def test_of_many_processes_one_gets_the_lock(tmp_path):
    got, refused, start = [], [], threading.Barrier(8)

    def try_it() -> None:
        lock = RunLock(tmp_path)
        start.wait()
        try:
            lock.acquire()
            got.append(lock)
        except ArgumentError:
            refused.append(lock)

    for _ in range(5):
        threads = [threading.Thread(target=try_it) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(got), len(refused)) == (1, 7)
        check_lock(tmp_path, got[0].id)
        got.pop().release()
        refused.clear()


def test_a_holder_elsewhere_may_live_until_its_lease_has_not_changed(tmp_path, caplog):
    foreign(tmp_path)
    with caplog.at_level(logging.WARNING, "tfdistr"):
        assert 0.6 <= seconds_to_acquire(tmp_path) < 3
    assert [record.getMessage() for record in caplog.records] == [
        f"A job that may still run holds the lock of {tmp_path} (process 7 on far, since "
        "2026-01-01 10:00:00+00:00). Waiting for 1 seconds."
    ]


def test_a_holder_elsewhere_that_renews_its_lease_keeps_it(tmp_path):
    lease = foreign(tmp_path, wait=60.0)
    renewal = threading.Timer(0.5, lambda: foreign(tmp_path, wait=60.0, beat=4))
    renewal.start()
    with pytest.raises(ArgumentError, match="process 7 on far, since 2026"):
        RunLock(tmp_path).acquire()
    renewal.join()
    assert json.loads((tmp_path / LOCK).read_text()) == {**lease, "beat": 4}


def test_workers_elsewhere_may_outlive_a_killed_launcher(tmp_path):
    with holder(tmp_path, "elsewhere") as process:
        process.kill()
        process.wait()
        assert 1.2 <= seconds_to_acquire(tmp_path) < 4  # 1 s, and a quarter between two renewals


@pytest.mark.parametrize("code", [errno.ENOTSUP, errno.ENOLCK], ids=["not supported", "no locks"])
def test_a_file_system_without_locks_has_the_lease(tmp_path, monkeypatch, code):
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    with holder(tmp_path) as process:
        monkeypatch.setattr(fcntl, "flock", refuse)
        with pytest.raises(ArgumentError, match=f"process {process.pid} on "):
            RunLock(tmp_path).acquire()
        process.kill()
        process.wait()
        assert 1.2 <= seconds_to_acquire(tmp_path) < 4


def test_a_holder_renews_its_lease(tmp_path):
    with RunLock(tmp_path, 0.4):
        beats = set()
        until = time.monotonic() + 5
        while len(beats) < 3 and time.monotonic() < until:
            beats.add(json.loads((tmp_path / LOCK).read_text())["beat"])
            time.sleep(0.02)
    assert len(beats) >= 3


def test_what_no_lease_says_counts_as_none(tmp_path):
    for text in ["", "[" * 100_000, "[]", '{"id": 1}', "\0"]:  # the first of a process killed as it began
        (tmp_path / LOCK).write_text(text)
        assert seconds_to_acquire(tmp_path) < 1


def test_a_holder_that_wakes_leaves_the_next_one_alone(tmp_path):
    with RunLock(tmp_path, 0.4) as lock:
        new = tmp_path / "new"
        new.write_text(json.dumps(foreign(tmp_path)))
        new.replace(tmp_path / LOCK)
        before = (tmp_path / LOCK).read_text()
        time.sleep(0.5)  # it renews its lease several times
        with pytest.raises(CheckpointError, match="Only one job at a time") as caught:
            check_lock(tmp_path, lock.id)
        assert caught.value.received.endswith(
            ": process 7 on far, since 2026-01-01 10:00:00+00:00 has taken it over"
        )
    assert (tmp_path / LOCK).read_text() == before


def test_a_checkpoint_of_a_job_that_has_lost_its_lock(tmp_path):
    def saved(step: int) -> Checkpoint:
        return Checkpoint("this", Position(0, step), step, {"workers": 1}, {"a": np.arange(9)})

    with RunLock(tmp_path) as lock:
        folder = CheckpointFolder(tmp_path / "checkpoints", "this", lock.id)
        folder.save(saved(1))
        foreign(tmp_path)
        later = CheckpointFolder(tmp_path / "checkpoints", "this")
        later.save(saved(5))
        before = os.listdir(folder.path)
        with pytest.raises(CheckpointError, match="Only one job at a time"):
            folder.save(saved(2))
        assert os.listdir(folder.path) == before


@pytest.mark.parametrize("looks", [1, 2])
def test_a_lock_that_is_lost_in_the_middle_of_a_save(tmp_path, monkeypatch, looks):
    look, made = module.check_lock, []

    def check(folder: Path, id: str | None) -> None:
        made.append(id)
        if len(made) == looks + 1:
            foreign(tmp_path)
        look(folder, id)

    monkeypatch.setattr("tfdistr.checkpoint.folder.check_lock", check)
    with RunLock(tmp_path) as lock:
        later = CheckpointFolder(tmp_path / "checkpoints", "this")
        later.save(Checkpoint("this", Position(0, 5), 5, {"workers": 1}, {"a": np.arange(9)}))
        folder = CheckpointFolder(tmp_path / "checkpoints", "this", lock.id)
        with pytest.raises(CheckpointError):
            folder.save(Checkpoint("this", Position(0, 2), 2, {"workers": 1}, {"a": np.arange(9)}))
        assert Position(0, 5) in later.positions()


def test_workers_know_the_lock_of_their_launcher(tmp_path, monkeypatch):
    assert lock_variable(tmp_path) == {}
    with RunLock(tmp_path) as lock:
        variable = lock_variable(tmp_path)
        assert lock_id(tmp_path) == lock.id
    assert lock_id(tmp_path) is None
    for name, value in variable.items():
        monkeypatch.setenv(name, value)
    assert lock_id(tmp_path) == lock.id
    assert lock_id(tmp_path / "of another job") is None
