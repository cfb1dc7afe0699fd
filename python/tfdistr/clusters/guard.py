"""The guard between a launcher and a program. The program exits with the guard, and with the launcher.

    python guard.py run PARENT_PID PROGRAM ARGUMENT...   (srun)
    python guard.py rank RUN_DIR                         (a worker, as a task that srun starts)
    python guard.py host                                 (a worker, on a host that ssh or a Ray actor reaches)
    python guard.py after PARENT_PID kill GROUP          (no program: what is left when a process exits)
    python guard.py after PARENT_PID cancel JOB

SIGINT asks the program to stop. If it does not exit soon, the guard kills it. SIGTERM alone is Slurm's
preemption warning to all processes of a job step. The guard forwards it: the worker may still have to save
its checkpoint. The guard of a worker reports its state in lines of ``MARK`` and JSON on its standard output.
Other hosts would see files too late.

The first line of the input of ``host`` is a JSON object with the program to run. Then come signals for the
worker, as JSON, and empty lines as heartbeats. The worker is killed at the end of the input, and if there is
no input for too long: nothing else reports that a network is cut. Its output goes to standard error.

The script is run by its path and uses the standard library only: with R workers Python does not find tfdistr.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

PLACE = "clusters/guard.py"
"""This file, in the folder of tfdistr on any host."""
MARK = "tfdistr-rank "
"""The beginning of the lines for the launcher."""
SPEC = "ranks.json"
"""The file of the run directory with the command and the environment variables of each rank."""
WARNING = "sigterm"
"""The file of the run directory that asks each rank on another host to send SIGTERM to its worker."""
_GRACE = 2  # seconds that a worker has to exit by itself
HEARTBEAT = 2.0
"""Seconds between two heartbeats of a worker on another host: nothing else reports that it is lost."""
_LINGER = 5.0  # seconds that the launcher needs to see the failure of a worker
_CORE = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir)
_MPI_RANKS = os.path.join(_CORE, "rendezvous", "launcher_ranks.py")
_CLIENT = os.path.join(_CORE, "fork_server", "client.py")
_CHUNK = 1 << 16
_POLL_INTERVAL = 0.2  # seconds
_TRIES = 30  # Slurm's controller may be busy
_PAUSE = 10.0  # seconds
# The variables in which MPICH and Slurm pass a rank the name of its host.
_HOST = ("PMI_HOSTNAME", "SLURMD_NODENAME")
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_NAMES = runpy.run_path(os.path.join(_CORE, "utils", "shared_names.py"))
_PROCESSES = runpy.run_path(os.path.join(_CORE, "utils", "processes.py"))
end_with_parent = _PROCESSES["end_with_parent"]


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
    """Wait for the exit of ``child``; return its status, and the signals that asked to stop it."""
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


def end_group_with_this(group: int, env: Mapping[str, str]) -> Callable[[], None]:
    """Start a process that kills a process group when this one exits in any way.

    The kernel kills the worker with its guard, but not the rest of the worker's process group.
    """
    start = env.get(_NAMES["START"], "")
    watcher = after_exit("kill", str(group), {**os.environ, _NAMES["START"]: start})

    def end() -> None:
        watcher.kill()
        watcher.wait()
        _NAMES["remove_names_of_start"](start)

    return end


def after_exit(action: str, target: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a process that kills the group, or cancels the Slurm job, when this one exits in any way."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", os.path.abspath(__file__), "after", str(os.getpid()), action, target],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def after(parent: int, action: str, target: str) -> int:
    """Wait until ``parent``, which has started this process, exits; then do the action."""
    while os.getppid() == parent:
        time.sleep(_POLL_INTERVAL)
    if action == "kill":
        _PROCESSES["kill_group"](int(target))
        # Ranks that are killed while MPI starts leave names in /dev/shm.
        _NAMES["remove_names_of_start"](os.environ.get(_NAMES["START"], ""))
        return 0
    for _ in range(_TRIES):
        if subprocess.run(["scancel", target], stdin=subprocess.DEVNULL, check=False).returncode == 0:
            break
        time.sleep(_PAUSE)
    return 0


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
    tell = functools.partial(say, rank=int(index), host=host)
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
        tell(failed=str(error), missing=missing)
        _linger()
        return 1
    tell(pid=child.pid, step=os.environ.get("SLURM_STEP_ID", ""))
    warning = os.path.join(run_dir, WARNING)
    threading.Thread(target=_live, args=(tell, warning, child.pid), daemon=True).start()
    code, signals = supervise(child, env, tell)
    if code:
        _linger(signals)
    return code


def supervise(child: Any, env: Mapping[str, str], say: Any) -> tuple[int, list[int]]:
    """Wait for the exit of a worker and report it; return its exit status, as in a shell, and the signals."""
    own = isinstance(child, subprocess.Popen)
    end_watcher = end_group_with_this(child.pid, env)  # this process may be killed
    code, signals = watch(
        child.pid, changes(child) if own else child.changes(), first=signal.SIGTERM, then=signal.SIGKILL,
        grace=_GRACE, say=say,
    )  # fmt: skip
    say(exit_code=code, server_lost=not own and child.server_lost)
    end_watcher()
    return code if code >= 0 else 128 - code, signals


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
    """Wait, unless a signal was received: srun kills ranks that must still report when this one exits."""
    for number in _STOP_SIGNALS:
        signal.signal(number, lambda *_: os._exit(1))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
    if not received:
        time.sleep(_LINGER)


def lines(silence: list[float]) -> Iterator[str | None]:
    """Yield the lines of standard input; None if there was no input for ``silence[0]`` seconds."""
    reader = runpy.run_path(os.path.join(_CORE, "utils", "log_tail.py"))["LineReader"]()
    while True:
        if not select.select([0], [], [], silence[0])[0]:
            yield None
            continue
        received = os.read(0, _CHUNK)
        if not received:
            return
        yield from reader.take(received)


def obey(group: int, said: Iterator[str | None]) -> None:
    """Send the worker the signals that the launcher asks for, and kill it when the launcher is lost."""
    reason = "the connection to its launcher was closed"
    for line in said:
        if line is None:
            reason = "its launcher sends no heartbeat"
            break
        if line.strip():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, json.loads(line)["signal"])
    with contextlib.suppress(OSError):  # nobody reads it any more
        os.write(2, f"tfdistr: this worker is killed, because {reason}.\n".encode())
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def kept_to_loopback(env: dict[str, str], core: str) -> tuple[dict[str, str], str | None]:
    """Make TensorFlow's server listen on the loopback interface only, if possible, and return its variables.

    This process must live as long as the worker. If it is not possible, the result has the reason.
    """
    sys.path.insert(0, os.path.dirname(core))
    from tfdistr.errors import ClusterStartError, TfdistrError
    from tfdistr.network.loopback import LOOPBACK, keep_to_loopback

    try:
        kept = keep_to_loopback({LOOPBACK: "preload", **env})
        if kept.way != "namespace":
            return kept.environment(env), None
        # Each worker would be alone in its own namespace.
        reason = f'{LOOPBACK}=namespace works with local_cluster() only; here, "preload" does'
    except TfdistrError as error:
        reason = str(error.received if isinstance(error, ClusterStartError) else error.message)
    with contextlib.suppress(OSError):  # nobody reads it any more
        os.write(2, f"tfdistr: this worker listens on all interfaces of its host: {reason}.\n".encode())
    return env, reason


def run_on_host(spec: dict[str, Any], said: Iterator[str | None]) -> int:
    """Run the worker that ``spec`` describes, and return its exit status, as a shell does.

    Args:
        spec: "command", "env", "folder" (the working directory, if the host has it), "host", "index",
            "warm" (how a fork server starts the worker, or None), and "loopback" (the folder with tfdistr if
            the worker should listen on the loopback interface only, or None).
    """
    tell = functools.partial(say, rank=spec["index"], host=spec["host"])
    with contextlib.suppress(OSError):
        os.chdir(spec["folder"])
    env = {**os.environ, **spec["env"], "TFDISTR_PARENT_PID": str(os.getpid())}
    if spec["loopback"]:
        env, open_because = kept_to_loopback(env, spec["loopback"])
        if open_because:
            tell(open_because=open_because)
    output = open(2, "wb", buffering=0, closefd=False)  # noqa: SIM115 - as long as this process
    try:
        child = None
        if spec["warm"]:
            end_with_parent(signal.SIGKILL)  # the server then kills the program
            child = runpy.run_path(_CLIENT)["fork"](**spec["warm"], env=env, output=output)
        child = child or start(spec["command"], env, output)
    except OSError as error:
        tell(failed=str(error))
        return 1
    tell(pid=child.pid)
    for task, arguments in ((_live, (tell,)), (obey, (child.pid, said))):
        threading.Thread(target=task, args=arguments, daemon=True).start()
    return supervise(child, env, tell)[0]


def host() -> int:
    """Run the worker that the first line of the input describes."""
    silence = [60.0]
    said = lines(silence)
    first = next(said, None)
    if first is None:  # the launcher has exited
        return 1
    spec = json.loads(first)
    silence[0] = spec["silence"]
    return run_on_host(spec, said)


def say(**fields: object) -> None:
    """Write a message for the launcher."""
    # One write, so that lines of several ranks do not mix.
    with contextlib.suppress(OSError):  # no process reads it any more
        os.write(1, f"{MARK}{json.dumps(fields)}\n".encode())


def main(mode: str, *words: str) -> int:
    """Do what the command line says."""
    if mode == "run":
        return run(int(words[0]), list(words[1:]))
    if mode == "after":
        return after(int(words[0]), *words[1:])
    return rank(words[0]) if mode == "rank" else host()


if __name__ == "__main__":
    status = main(*sys.argv[1:])
    sys.stderr.flush()
    os._exit(status)
