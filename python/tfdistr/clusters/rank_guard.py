"""A guard between a launcher and a program. The program ends with the guard, and with the launcher.

    python rank_guard.py run PARENT_PID PROGRAM ARGUMENT...   (srun)
    python rank_guard.py rank RUN_DIR                         (a worker, as a task that srun starts)

SIGINT asks the program to end. If it has not ended a little later, the guard kills it. SIGTERM alone is
Slurm's preemption warning to all processes of a job step. The guard passes it on: the worker may still have
to save its checkpoint. The guard of a rank reports the state of its worker by lines of ``MARK`` and JSON on
its standard output, which srun passes on. Other hosts would see files too late.

The script is run by its path and uses the standard library only: with R workers Python does not find tfdistr.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

MARK = "tfdistr-rank "
"""The beginning of the lines that a rank prints for the launcher."""
SPEC = "ranks.json"
"""The file of the run directory that says what each rank runs, and with which environment variables."""
WARNING = "sigterm"
"""The file of the run directory that asks each rank on another host to send SIGTERM to its worker."""
_GRACE = 2  # seconds that a worker has to end by itself
HEARTBEAT = 2.0
"""Seconds between two heartbeats of a rank on another host: nothing else reports that a rank is lost."""
_LINGER = 5.0  # seconds that the launcher needs to see the failure of a worker
_CORE = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
_MPI_RANKS = os.path.join(_CORE, "rendezvous", "launcher_ranks.py")
_CLIENT = os.path.join(_CORE, "fork_server", "client.py")
# The variables in which MPICH and Slurm tell a rank the name of its host.
_HOST = ("PMI_HOSTNAME", "SLURMD_NODENAME")
_TOLD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
end_with_parent = runpy.run_path(os.path.join(_CORE, "utils", "processes.py"))["end_with_parent"]


def changes(child: subprocess.Popen[bytes]) -> Iterator[bool | int]:
    """Wait for changes of a child: True if it was stopped, False if it continues; last its exit status."""
    while True:
        _, status = os.waitpid(child.pid, os.WUNTRACED | os.WCONTINUED)
        if not os.WIFSTOPPED(status) and not os.WIFCONTINUED(status):
            yield os.waitstatus_to_exitcode(status)
            return
        yield os.WIFSTOPPED(status)


def watch(
    child: int,
    changes: Iterator[bool | int],
    *,
    first: signal.Signals,
    then: signal.Signals,
    grace: int,
    say: Any,
) -> tuple[int, list[int]]:
    """Wait for the end of ``child``, and end it when this process is told to end.

    Args:
        child: The process id of the program, which is in its own process group.
        changes: The changes of the program; see ``changes``.
        first: The signal for the program when this process is told to end.
        then: The signal for the program at each further signal.
        grace: Seconds until the program is killed.
        say: Called as ``say(stopped=bool)`` when the program was stopped or continues.

    Returns:
        The exit status of the program, negative for a signal, and the signals that told this process to end.
        A signal that comes later is added to them.
    """
    told: list[int] = []

    def end(number: int, frame: object) -> None:
        if number == signal.SIGALRM:
            hand_on = signal.SIGKILL
        elif told:
            hand_on = then
        elif number == signal.SIGTERM:
            hand_on = signal.SIGTERM
        else:
            hand_on = first
            told.append(number)
            signal.alarm(grace)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, hand_on)

    for number in (*_TOLD, signal.SIGALRM):
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TOLD)
    code = 0
    for change in changes:
        if isinstance(change, bool):
            say(stopped=change)
        else:
            code = change
    signal.alarm(0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # the rest of its group
    return code, told


def start(
    command: list[str], env: dict[str, str] | None = None, output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in its own process group. The kernel ends the program with this process."""
    end_with_parent(signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, _TOLD)  # until they have handlers

    def prepare() -> None:
        end_with_parent(signal.SIGKILL)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _TOLD)

    return subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT if output else None,
        process_group=0,
        preexec_fn=prepare,  # noqa: PLW1509 - there are no threads here
    )


def fork(warm: dict[str, Any], env: dict[str, str], output: IO[bytes]) -> Any:
    """Start a program by a fork server; None if the server refuses, and then ``output`` says why."""
    client = runpy.run_path(_CLIENT)
    end_with_parent(signal.SIGKILL)  # the server ends the program then
    try:
        return client["Forked"](warm["server"], warm["argv"], env=env, output=output.fileno())
    except client["Refused"] as refused:
        output.write(client["cold_start"](refused))
        return None


def end_group_with_this(group: int) -> subprocess.Popen[bytes]:
    """Start a process that kills a process group when this one has ended in any way; see group_reaper.py."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "group_reaper.py")
    return subprocess.Popen(
        [sys.executable, "-I", "-S", program, str(os.getpid()), str(group)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def run(parent: int, command: list[str]) -> int:
    """Run a program for the process ``parent``, which has started this one."""
    try:
        child = start(command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    if os.getppid() != parent:
        child.kill()  # the parent ended before the kernel watched it
    # At a second SIGINT srun would end before its tasks, which need time to end.
    code, _ = watch(
        child.pid, changes(child), first=signal.SIGINT, then=signal.SIGTERM, grace=2 * _GRACE,
        say=lambda **fields: None,
    )  # fmt: skip
    return code if code >= 0 else 128 - code


def rank(run_dir: str) -> int:
    """Run the worker for the rank of this process."""
    variables = runpy.run_path(_MPI_RANKS)["RANKS"]
    index = next((os.environ[name] for name in variables if os.environ.get(name)), None)
    host = next(filter(None, map(os.environ.get, _HOST)), socket.gethostname())
    if index is None:
        none = ", ".join(variables)
        print(f"srun does not tell a process its rank, in none of {none}.", file=sys.stderr)
        return 1
    say = functools.partial(_say, rank=int(index), host=host)
    try:
        with open(os.path.join(run_dir, SPEC)) as file:
            for status in (os.stat(run_dir), os.fstat(file.fileno())):  # it names the program to run
                if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                    raise PermissionError(f"others can write to {run_dir}, or it is not this user's")
            spec = json.load(file)
        command = [*spec["command"], run_dir, index]
        env = {**os.environ, **spec["environments"][int(index)], "TFDISTR_PARENT_PID": str(os.getpid())}
        env.pop("TF_CONFIG", None)
        with open(os.path.join(run_dir, "logs", f"worker-{index}.log"), "wb", buffering=0) as output:
            child = start(command, env, output)
    except OSError as error:
        missing = None if os.path.exists(os.path.join(run_dir, SPEC)) else run_dir
        say(failed=str(error), missing=missing)
        _linger()
        return 1
    say(pid=child.pid, step=os.environ.get("SLURM_STEP_ID", ""))
    warning = os.path.join(run_dir, WARNING)
    threading.Thread(target=_live, args=(say, warning, child.pid), daemon=True).start()
    watcher = end_group_with_this(child.pid)  # srun may kill this process
    end_with_parent(signal.SIGINT)
    code, told = watch(
        child.pid, changes(child), first=signal.SIGTERM, then=signal.SIGKILL, grace=_GRACE, say=say
    )
    say(exit_code=code)
    watcher.kill()
    if code:
        _linger(told)
    return code if code >= 0 else 128 - code


def _live(say: Callable[[], None], warning: str = "", group: int = 0) -> None:
    """Send heartbeats, and send SIGTERM to a process group when the file ``warning`` is there."""
    while True:
        time.sleep(HEARTBEAT)
        say()
        if warning and os.path.exists(warning):
            warning = ""
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(group, signal.SIGTERM)


def _linger(told: Sequence[int] = ()) -> None:
    """Wait for a signal: at the end of this rank srun could end others, which may still have to report.

    Args:
        told: The signals that have come so far. After one of them this process does not wait.
    """
    for number in _TOLD:
        signal.signal(number, lambda *_: os._exit(1))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _TOLD)
    if not told:
        time.sleep(_LINGER)


def _say(**fields: Any) -> None:
    # One write, so that lines of several ranks do not mix.
    with contextlib.suppress(OSError):  # no process reads it any more
        os.write(1, f"{MARK}{json.dumps(fields)}\n".encode())


if __name__ == "__main__":
    status = rank(sys.argv[2]) if sys.argv[1] == "rank" else run(int(sys.argv[2]), sys.argv[3:])
    sys.stderr.flush()
    os._exit(status)
