"""Asks hosts, all at once by ssh, what they have for workers, before something is started there."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tfdistr.clusters.hosts import name_of_host
from tfdistr.clusters.ssh import host_facts
from tfdistr.clusters.ssh.host_facts import MARK

# The exit statuses of a shell whose program is not there, and of a Python that could not run the script.
_NO_PYTHON = (1, 126, 127)
#: The most seconds that ssh may take to connect.
CONNECT = 20.0
#: An R program that prints the versions that workers in R need.
VERSIONS_OF_R = (
    'v <- function(p) tryCatch(as.character(packageVersion(p)), error = function(e) ""); '
    'cat(as.character(getRversion()), v("reticulate"), v("tfdistr"), sep = "\\n")'
)


@dataclass(frozen=True)
class Answer:
    """What a host has answered.

    Args:
        host: The host.
        facts: The facts about the host (see host_facts.py); empty if there is no answer.
        failure: Why there is no answer, if there is none.
        fix: What to do then.
        ahead: The seconds by which the clock of the host is at least ahead of that of this machine; negative
            if it is behind.
    """

    host: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    failure: str | None = None
    fix: str = ""
    ahead: float = 0.0


def ssh_command(ssh: Sequence[str], host: str, command: Sequence[str], *options: str) -> list[str]:
    """Return the command that runs a program on a host.

    Args:
        ssh: The program that reaches the host, and its options; by default ``ssh``. Its options come first,
            so that they win over the options here.
        host: The host.
        command: The program and its arguments.
        options: Further options of ssh.
    """
    # Without a terminal, ssh can ask nobody for a password.
    given = ["-T", "-oBatchMode=yes", *options]
    return [*(ssh or ["ssh"]), *given, host, shlex.join(command)]


def ask(
    hosts: Sequence[str],
    *,
    ssh: Sequence[str] = (),
    timeout: float,
    ports: int = 1,
    wanted: Sequence[int] = (),
    names: Sequence[str] | None = None,
    env: Mapping[str, str] | None = None,
    marker: str | None = None,
    r: dict[str, Any] | None = None,
) -> list[Answer]:
    """Ask hosts for the facts about them.

    Args:
        hosts: The hosts, as ssh takes them.
        ssh: The program that reaches them, and its options; by default ``ssh``.
        timeout: Seconds to wait for the answers.
        ports: The number of free ports that each host must find.
        wanted: Ports that should be free on each host.
        names: Names that each host should know; by default the names of all hosts.
        env: Environment variables of the workers.
        marker: A file that each host must see.
        r: What `r_request` returns, if the workers use R.

    Returns:
        An answer for each host, in their order.
    """
    env = env or {}
    request = {
        "path": list(filter(None, env.get("PYTHONPATH", "").split(os.pathsep))),
        "core": str(Path(__file__).parents[2]),
        "marker": marker,
        "names": list(map(name_of_host, hosts) if names is None else names),
        "ports": ports,
        "wanted": list(wanted),
        "r": r,
    }
    # Python reads the script from its input: a host without tfdistr answers, too.
    script = f"{Path(host_facts.__file__).read_text('utf-8')}\nreport({json.dumps(request)!r})\n"
    looks = [_Look(host, ssh, script, timeout) for host in hosts]
    try:
        return [look.answer() for look in looks]
    finally:
        for look in looks:
            look.stop()


def r_request(rscript: Sequence[str], env: Mapping[str, str]) -> dict[str, Any]:
    """Return the R program that prints the versions that R workers need, for `ask`.

    Args:
        rscript: Rscript and its options.
        env: Environment variables of the workers.
    """
    libraries = {name: env[name] for name in ("R_LIBS", "R_LIBS_USER") if name in env}
    return {"command": [*rscript, "-e", VERSIONS_OF_R], "env": libraries}


class _Look:
    """One ssh that asks a host."""

    def __init__(self, host: str, ssh: Sequence[str], script: str, timeout: float) -> None:
        self._host = host
        self._timeout = timeout
        self._error: str | None = None
        self._process: subprocess.Popen[str] | None = None
        self._output = self._said = ""
        option = f"-oConnectTimeout={max(1, int(min(timeout, CONNECT)))}"
        command = ssh_command(ssh, host, [sys.executable, "-"], option)
        self._began = self._ended = time.time()
        self._end = time.monotonic() + timeout
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._error = f"{command[0]}: {error.strerror}"
            return
        self._thread = threading.Thread(target=self._talk, args=(script,), daemon=True)
        self._thread.start()

    def _talk(self, script: str) -> None:
        assert self._process is not None
        with contextlib.suppress(OSError, ValueError):  # it was stopped
            self._output, self._said = self._process.communicate(script)
        self._ended = time.time()

    def answer(self) -> Answer:
        """Wait for the answer."""
        here = f"Let this user in without a password: ssh {shlex.quote(self._host)} true."
        if self._process is None:
            return Answer(self._host, failure=self._error, fix="Install ssh, or pass `ssh`, its path.")
        self._thread.join(max(0.0, self._end - time.monotonic()))
        if self._thread.is_alive():
            return Answer(self._host, failure=f"no answer within {self._timeout:g} s", fix=here)
        found = [line.partition(MARK)[2] for line in self._output.splitlines() if MARK in line]
        try:
            facts = json.loads(found[-1])
        except (ValueError, IndexError):
            status = self._process.returncode
            silent = f"ssh says nothing, and ends with status {status}"
            last = (self._said.strip().splitlines() or [silent])[-1]
            there = f"The same Python must be at this path on that host: {sys.executable}."
            return Answer(self._host, failure=last, fix=there if status in _NO_PYTHON else here)
        before, after = facts["time"] - self._ended, facts["time"] - self._began
        return Answer(self._host, facts, ahead=before if before > 0 else min(after, 0.0))

    def stop(self) -> None:
        """End it, if it still runs."""
        if self._process is not None and self._thread.is_alive():
            self._process.kill()
            self._thread.join()


@contextlib.contextmanager
def marker_in(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Make a file in a folder for the time of the block; the value is its path.

    A host that has another folder of the same name does not see the file.

    Raises:
        OSError: This process cannot write into the folder.
    """
    file, path = tempfile.mkstemp(prefix=".tfdistr-", dir=folder)
    try:
        os.close(file)
        yield path
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
