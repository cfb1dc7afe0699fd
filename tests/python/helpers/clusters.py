"""Runs a program as every worker of a cluster on this machine, as a user would with TF_CONFIG."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warm
from paths import PROGRAMS

import tfdistr
from tfdistr.network.ports import free_ports
from tfdistr.utils.gpus import visible_gpus

MPIEXEC = Path(sys.executable).with_name("mpiexec")
#: Has workers see no GPU. Where there is none they need no fork server of their own.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""} if visible_gpus({}) else {}


@dataclass
class Ended:
    """A process that has ended: its exit status and all that it printed."""

    status: int
    output: str
    seconds: float


def run_cluster(
    program: str,
    workers: int,
    *args: Sequence[str],
    timeout: float = 240,
    mpi: bool = False,
    start_warm: bool = True,
) -> list[Ended]:
    """Start ``workers`` processes of ``programs/<program>``, wait for all, and leave none behind.

    ``args`` holds the arguments of each worker, or one list for all. With ``workers=1`` there is no
    TF_CONFIG. With ``mpi``, mpiexec starts the workers, and what came of them all is one ``Ended``.
    With ``start_warm`` they are forks of a process that has imported TensorFlow.
    """
    each = args if len(args) == workers else list(args) * workers
    commands = [[sys.executable, str(PROGRAMS / program), *arguments] for arguments in each]
    if mpi:
        env = {**warm.ENVIRONMENT, **os.environ, "TF_CONFIG": ""}
        if start_warm:
            commands = [warm.rank(command, env) for command in commands]
        ranks = [word for command in commands for word in (":", "-n", "1", *command)]
        return run_commands([[str(MPIEXEC), *ranks[1:]]], [env], timeout)
    environments = [os.environ | {"TF_CONFIG": ""}]
    if workers > 1:
        plan = tfdistr.tf_config(worker=[f"127.0.0.1:{port}" for port in free_ports(workers)])
        environments = [os.environ | environment for environment in plan.environments()]
    return run_commands(commands, environments, timeout, start_warm=start_warm)


def run_well(*args: Any, **options: Any) -> list[Ended]:
    """As `run_cluster`, whose processes must all end with status 0."""
    ended = run_cluster(*args, **options)
    for process in ended:
        assert process.status == 0, process.output[-4000:]
    return ended


def run_commands(
    commands: Sequence[Sequence[str]],
    environments: Sequence[Mapping[str, str]],
    timeout: float,
    *,
    start_warm: bool = True,
) -> list[Ended]:
    """Start all commands, each with its environment, wait for them, and leave none behind."""
    began = time.monotonic()
    processes = [
        warm.start(command, environment, warm=start_warm)
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
        self.started: list[warm.Process] = []

    def start(self, *command: str, env: dict[str, str] | None = None) -> warm.Process:
        process = warm.start(command, {**os.environ, "TF_CONFIG": "", **(env or {})})
        self.started.append(process)
        return process

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
