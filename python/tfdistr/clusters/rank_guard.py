"""The guard between a launcher and a program. The program exits with the guard, and with the launcher.

    python rank_guard.py run PARENT_PID PROGRAM ARGUMENT...   (srun)
    python rank_guard.py rank RUN_DIR                         (a worker, as a task that srun starts)

SIGINT asks the program to stop. If it does not exit soon, the guard kills it. SIGTERM alone is Slurm's
preemption warning to all processes of a job step. The guard forwards it: the worker may still have to save
its checkpoint. The guard of a rank reports the state of its worker in lines of ``MARK`` and JSON on its
standard output, which srun forwards. Other hosts would see files too late.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

MARK = "tfdistr-rank "
"""The beginning of the lines that a rank prints for the launcher."""
SPEC = "ranks.json"
"""The file of the run directory with the command and the environment variables of each rank."""
WARNING = "sigterm"
"""The file of the run directory that asks each rank on another host to send SIGTERM to its worker."""
_GRACE = 2  # seconds that a worker has to exit by itself
HEARTBEAT = 2.0
"""Seconds between two heartbeats of a rank on another host: nothing else reports that a rank is lost."""
_LINGER = 5.0  # seconds that the launcher needs to see the failure of a worker
_CORE = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
_MPI_RANKS = os.path.join(_CORE, "rendezvous", "launcher_ranks.py")
_CLIENT = os.path.join(_CORE, "fork_server", "client.py")
# The variables in which MPICH and Slurm pass a rank the name of its host.
_HOST = ("PMI_HOSTNAME", "SLURMD_NODENAME")
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NAMES = runpy.run_path(os.path.join(_CORE, "utils", "shared_names.py"))
end_with_parent = runpy.run_path(os.path.join(_CORE, "utils", "processes.py"))["end_with_parent"]


def changes(child: subprocess.Popen[bytes]) -> Iterator[bool | int]:
    """Yield the changes of a child: True if it was stopped, False if it continues; then its exit status."""
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
    """Wait for the exit of ``child``, and stop it when this process is asked to stop.

    Args:
        child: The process id of the program, which is in its own process group.
        changes: The changes of the program; see ``changes``.
        first: The signal for the program when this process is asked to stop.
        then: The signal for the program at each further signal.
        grace: Seconds until the program is killed.
        say: Called as ``say(stopped=bool)`` when the program was stopped or continues.

    Returns:
        The exit status of the program, negative for a signal, and the signals that asked this process to
        stop. Later signals are added to them.
    """
    received: list[int] = []

    def end(number: int, frame: object) -> None:
        if number == signal.SIGALRM:
            hand_on = signal.SIGKILL
        elif received:
            hand_on = then
        elif number == signal.SIGTERM:
            hand_on = signal.SIGTERM
        else:
            hand_on = first
            received.append(number)
            signal.alarm(grace)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, hand_on)

    for number in (*_STOP_SIGNALS, signal.SIGALRM):
        signal.signal(number, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    code = 0
    for change in changes:
        if isinstance(change, bool):
            say(stopped=change)
        else:
            code = change
    signal.alarm(0)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child, signal.SIGKILL)  # the rest of its group
    return code, received


def start(
    command: list[str], env: dict[str, str] | None = None, output: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in its own process group. The kernel kills the program with this process."""
    end_with_parent(signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)  # until they have handlers

    def prepare() -> None:
        end_with_parent(signal.SIGKILL)
        signal.signal(signal.SIGUSR1, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)

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
    """Start a program through a fork server; None if the server refuses, with the reason in ``output``."""
    client = runpy.run_path(_CLIENT)
    end_with_parent(signal.SIGKILL)  # the server then kills the program
    try:
        return client["Forked"](warm["server"], warm["argv"], env=env, output=output.fileno())
    except client["Refused"] as refused:
        output.write(client["cold_start"](refused))
        return None


def end_group_with_this(group: int, env: Mapping[str, str]) -> Callable[[], None]:
    """Start a process that kills a process group when this one exits in any way; see after_exit.py.

    Args:
        env: The environment of the worker, whose group this is.

    Returns:
        A function to call when the worker has exited.
    """
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "after_exit.py")
    start = env.get(_NAMES["START"], "")
    watcher = subprocess.Popen(
        [sys.executable, "-I", "-S", program, str(os.getpid()), "kill", str(group)],
        env={**os.environ, _NAMES["START"]: start},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def end() -> None:
        watcher.kill()
        watcher.wait()
        _NAMES["remove_names_of_start"](start)

    return end


def run(parent: int, command: list[str]) -> int:
    """Run a program for the process ``parent``, which has started this one."""
    try:
        child = start(command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    if os.getppid() != parent:
        child.kill()  # the parent exited before the kernel watched it
    # At a second SIGINT srun would exit before its tasks, which need time to exit.
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
        print(f"srun has set no rank for this process, in none of {none}.", file=sys.stderr)
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
    end_watcher = end_group_with_this(child.pid, env)  # srun may kill this process
    end_with_parent(signal.SIGINT)
    code, signals = watch(
        child.pid, changes(child), first=signal.SIGTERM, then=signal.SIGKILL, grace=_GRACE, say=say
    )
    say(exit_code=code)
    end_watcher()
    if code:
        _linger(signals)
    return code if code >= 0 else 128 - code


def _live(say: Callable[[], None], warning: str = "", group: int = 0) -> None:
    """Send heartbeats, and send SIGTERM to a process group when the file ``warning`` is there."""
    while True:
        time.sleep(HEARTBEAT)
        say()
        if warning and os.path.exists(warning):
            warning = ""
            with contextlib.suppress(ProcessLookupError):  # it has just exited
                os.killpg(group, signal.SIGTERM)


def _linger(received: Sequence[int] = ()) -> None:
    """Wait for a signal: when this rank exits, srun could kill others, which may still have to report.

    Args:
        received: The signals so far. After one of them this process does not wait.
    """
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda *_: os._exit(1))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    if not received:
        time.sleep(_LINGER)


def _say(**fields: Any) -> None:
    # One write, so that lines of several ranks do not mix.
    with contextlib.suppress(OSError):  # no process reads it any more
        os.write(1, f"{MARK}{json.dumps(fields)}\n".encode())


if __name__ == "__main__":
    status = rank(sys.argv[2]) if sys.argv[1] == "rank" else run(int(sys.argv[2]), sys.argv[3:])
    sys.stderr.flush()
    os._exit(status)
