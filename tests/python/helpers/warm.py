"""Starts programs as forks of a process that has imported TensorFlow: those that tests start by hand."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from paths import PROGRAMS

from tfdistr.clusters.local.local_cluster import BY_MEMORY
from tfdistr.fork_server.client import Forked, Refused
from tfdistr.fork_server.servers import WarmStart, warm_start
from tfdistr.network.loopback import keep_to_loopback

#: As the workers of ``local_cluster`` have it, so that one fork server does for these and for programs.
ENVIRONMENT = {"TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "ERROR", "PYTHONUNBUFFERED": "1", **BY_MEMORY}
_RANK = Path(__file__).with_name("warm_rank.py")
#: Where a fork finds the socket of the server that has forked it; see programs/borrowed.py.
SERVER = "SERVER_OF_TESTS"
#: The first argument of a Python script, before its path, whose workers need no server of its own.
BORROWING = str(PROGRAMS / "borrowing.py")


class WarmProcess(Forked):
    """A fork with what tests use of ``subprocess.Popen``; its output comes by a pipe, or goes to a file."""

    def __init__(self, how: WarmStart, env: Mapping[str, str], output: IO[bytes] | None) -> None:
        self.args = list(how.argv)
        env = {**env, SERVER: how.server}
        if output:
            super().__init__(how.server, how.argv, env=env, output=output.fileno())
            return
        read, write = os.pipe()
        self.stdout = open(read, encoding="utf-8", errors="replace")  # noqa: SIM115
        try:
            super().__init__(how.server, how.argv, env=env, output=write)
        except BaseException:
            self.stdout.close()
            raise
        finally:
            os.close(write)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """What else it prints until its end; ``subprocess.TimeoutExpired`` if that does not come in time."""
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.append(self.stdout.read()), daemon=True)
        reader.start()
        reader.join(timeout)
        if reader.is_alive():
            raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
        self.wait(timeout)
        self.stdout.close()
        return said[0], None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


Process = subprocess.Popen[str] | WarmProcess


def start(
    command: Sequence[str], env: Mapping[str, str], *, warm: bool = True, output: IO[bytes] | None = None
) -> Process:
    """Start a program with the whole environment ``env``, in a process group of its own.

    Args:
        command: This Python and a script, or "-m" and a module; anything else starts cold.
        env: Its environment, before which `ENVIRONMENT` comes.
        warm: Whether it is to be a fork; a program that does not import TensorFlow starts cold sooner.
        output: Where its output goes, if not to its ``stdout``.
    """
    env = {**ENVIRONMENT, **env}
    how = warm_start(command, env, keep_to_loopback(env)) if warm else None
    if how:
        try:
            return WarmProcess(how, env, output)
        except Refused as refused:
            print(f"{command} starts cold: {refused}", file=sys.stderr)
    return subprocess.Popen(
        command, env=env, stdin=subprocess.DEVNULL, stdout=output or subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def rank(command: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """What mpiexec, which has the environment ``env``, is to start for the program ``command`` as a rank."""
    how = warm_start(command, env, keep_to_loopback(env))
    if how is None:
        return list(command)
    words = len(command) - len(how.argv)
    return [sys.executable, "-I", "-S", str(_RANK), how.server, str(words), *command]
