"""Runs a program as every worker of a cluster on this machine, as a user would with TF_CONFIG."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tfdistr
from tfdistr.launch.ports import free_ports

MPIEXEC = Path(sys.executable).with_name("mpiexec")
PROGRAMS = Path(__file__).parent / "programs"


@dataclass
class Ended:
    """A process that has ended: its exit status and all that it printed."""

    status: int
    output: str
    seconds: float


def run_cluster(
    program: str, workers: int, *args: Sequence[str], timeout: float = 240, mpi: bool = False
) -> list[Ended]:
    """Start ``workers`` processes of ``programs/<program>``, wait for all, and leave none behind.

    ``args`` holds the arguments of each worker, or one list for all. With ``workers=1`` there is no
    TF_CONFIG. With ``mpi``, mpiexec starts the workers, and what came of them all is one ``Ended``.
    """
    each = args if len(args) == workers else list(args) * workers
    commands = [[sys.executable, str(PROGRAMS / program), *arguments] for arguments in each]
    if mpi:
        ranks = [word for command in commands for word in (":", "-n", "1", *command)]
        return run_commands([[str(MPIEXEC), *ranks[1:]]], [os.environ | {"TF_CONFIG": ""}], timeout)
    environments = [os.environ | {"TF_CONFIG": ""}]
    if workers > 1:
        plan = tfdistr.tf_config(worker=[f"127.0.0.1:{port}" for port in free_ports(workers)])
        environments = [os.environ | environment for environment in plan.environments()]
    return run_commands(commands, environments, timeout)


def run_commands(
    commands: Sequence[Sequence[str]], environments: Sequence[Mapping[str, str]], timeout: float
) -> list[Ended]:
    """Start all commands, each with its environment, wait for them, and leave none behind."""
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for command, environment in zip(commands, environments, strict=True)
    ]
    ended = []
    try:
        for process in processes:
            output, _ = process.communicate(timeout=max(1.0, timeout - (time.monotonic() - began)))
            ended.append(Ended(process.returncode, output, time.monotonic() - began))
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return ended


class Processes:
    """Processes that are ended with the context."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *command: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        environment = {**os.environ, "TF_CONFIG": "", "TF_CPP_MIN_LOG_LEVEL": "2", **(env or {})}
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.started.append(process)
        return process

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
