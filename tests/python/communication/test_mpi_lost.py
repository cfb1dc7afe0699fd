"""What is known of an mpiexec that ended before its ranks, and of the ways to its hosts."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from launched import is_there, wait_for

from tfdistr.errors import ClusterStartError, WorkerFailedError
from tfdistr.launch.lost import Loss, reaching

# As Open MPI prints it.
OPEN_MPI = """--------------------------------------------------------------------------
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[21236,0],0] on node a
  Remote daemon: [[21236,0],2] on node c
"""


def ranks(hosts: str = "abc", *, pids: Sequence[int] = (7, 7, 7), silent: Mapping[int, float] = {}) -> Any:
    return [
        SimpleNamespace(index=index, host=host, pid=pids[index], silent_for=silent.get(index, 0.0), log="log")
        for index, host in enumerate(hosts)
    ]


def error_of(
    folder: Path, lost: Any, notes: Mapping[str, int | None], *, status: int = 255, lines: str = ""
) -> Any:
    file = folder / "reached.log"
    file.write_text("".join(json.dumps({"host": h, "status": s}) + "\n" for h, s in notes.items()))
    return Loss(status, lines.splitlines(), len(lost), lost).error(file)


@pytest.mark.parametrize(
    ("notes", "options", "host"),
    [
        ({"a": 7, "b": 255, "c": 7}, {}, "b"),  # ssh lost it
        ({"a": 7, "b": 137, "c": 7}, {}, "b"),  # killed there
        ({"a": 7, "b": -9, "c": 7}, {}, "b"),
        ({"a": 7, "b": 7, "c": None}, {}, "c"),  # no word any more
        ({"a": 7, "b": 255, "c": None}, {}, "b"),  # who has ended is lost, who has not may only be slow
        ({"b": 7, "c": 7}, {}, "a"),  # this machine, where mpiexec uses no ssh
        ({"a": 0, "b": 0, "c": 0}, {"lines": OPEN_MPI}, "c"),
        ({"a": 7, "b": 7, "c": 7}, {}, "unknown"),
        ({}, {}, "unknown"),
    ],
)
def test_the_host_is_named_as_far_as_it_is_known(
    tmp_path: Path, notes: dict[str, int | None], options: dict[str, Any], host: str
) -> None:
    error = error_of(tmp_path, ranks(), notes, **options)
    assert type(error) is WorkerFailedError
    index = "abc".find(host) if host != "unknown" else None
    assert (error.host, error.worker) == (host, index)
    if host == "unknown":
        assert error.message.startswith(
            "Workers 0 on a, 1 on b, 2 on c were lost: mpiexec ended with status 255 before they did. On "
            "which host something was lost is not known."
        )
    else:
        assert error.message.startswith(f"Worker {index} on {host} was lost with what mpiexec runs there, ")


def test_several_hosts_may_be_lost(tmp_path: Path) -> None:
    error = error_of(tmp_path, ranks(), {"a": 7, "b": 255, "c": 255})
    assert error.message.startswith("Workers 1 on b, 2 on c were lost with what mpiexec runs there, and then")
    assert (error.worker, error.host) == (1, "b")


def test_of_a_host_the_worker_is_named_that_was_silent_first(tmp_path: Path) -> None:
    error = error_of(tmp_path, ranks("aabb", pids=[7] * 4, silent={2: 5.0, 3: 9.0}), {"a": 7})
    assert error.message.startswith("Worker 3 of 4 on b was lost: it gave no sign of life for 9 s, and then ")
    assert (error.worker, error.host) == (3, "b")


def test_of_workers_that_did_not_start_those_are_named_whose_host_was_not_reached(tmp_path: Path) -> None:
    error = error_of(tmp_path, ranks(pids=[0, 7, 0]), {"a": 7, "b": 7, "c": 127})
    assert type(error) is ClusterStartError
    assert str(error.received).startswith("mpiexec ended with status 255 without workers 2 on c. Its last ")
    assert (error.worker, error.host) == (2, "c")
    error = error_of(tmp_path, ranks(pids=[0, 7, 0]), {"a": 7, "b": 7, "c": 7})
    assert "without workers 0 on a, 2 on c." in str(error.received)
    assert (error.worker, error.host) == (None, None)


@pytest.mark.parametrize("status", [-9, 137])
def test_a_killed_mpiexec_has_lost_no_host(tmp_path: Path, status: int) -> None:
    for pid, kind in ((7, WorkerFailedError), (0, ClusterStartError)):
        error = error_of(tmp_path, ranks(pids=[pid, 7, 7]), {"a": 7, "b": 255, "c": None}, status=status)
        assert type(error) is kind
        assert f"mpiexec on {os.uname().nodename} was killed by SIGKILL" in str(error)
        assert (error.worker, error.host) == (None, os.uname().nodename)


# --- What reaches a host

SAY = "import sys; print(sys.argv[1:])"


def reach(folder: Path, *program: str) -> list[str]:
    return [*reaching(folder / "reached.log", ["a", "b"], program), "-x", "b", "command"]


def noted(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "reached.log").read_text().splitlines()]


def test_how_the_program_ended_is_noted(tmp_path: Path) -> None:
    ended = subprocess.run(
        reach(tmp_path, sys.executable, "-c", f"{SAY}; sys.exit(7)", "a"), capture_output=True, text=True
    )
    assert (ended.returncode, ended.stdout) == (7, "['a', '-x', 'b', 'command']\n")
    missing = subprocess.run(reach(tmp_path, "/no/ssh"), capture_output=True, text=True)
    assert (missing.returncode, missing.stderr) == (127, "/no/ssh: No such file or directory\n")
    assert noted(tmp_path) == [{"host": "b", "status": 7}, {"host": "b", "status": 127}]


def test_a_program_that_does_not_end_with_mpiexec_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    command = reach(tmp_path, sys.executable, "-c", code)
    mpiexec = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
    process = subprocess.Popen([sys.executable, "-c", mpiexec, *command])
    assert wait_for(lambda: pid.exists() and pid.read_text(), 30)
    time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert wait_for((tmp_path / "reached.log").exists, 30)
    assert wait_for(lambda: not is_there(int(pid.read_text())), 10)
    assert noted(tmp_path) == [{"host": "b", "status": None}]


def test_a_program_that_is_started_while_mpiexec_ends_is_ended_too(tmp_path: Path) -> None:
    pid, port = tmp_path / "pid", socket.create_server(("127.0.0.1", 0))
    address = port.getsockname()
    os.set_inheritable(port.fileno(), True)  # as the port of mpiexec is
    code = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    mpiexec = "import subprocess, sys; subprocess.Popen(sys.argv[1:], close_fds=False)"
    with port:
        command = [sys.executable, "-c", mpiexec, *reach(tmp_path, sys.executable, "-c", code)]
        subprocess.run(command, close_fds=False, check=True)
    assert wait_for(lambda: pid.exists() and pid.read_text(), 30)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=5)
    assert wait_for((tmp_path / "reached.log").exists, 30)
    assert wait_for(lambda: not is_there(int(pid.read_text())), 10)
    assert noted(tmp_path) == [{"host": "b", "status": None}]
