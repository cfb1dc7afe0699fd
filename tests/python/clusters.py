"""Runs a program as every worker of a cluster on this machine, as a user would with TF_CONFIG."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tfdistr
from tfdistr.launch.ports import free_ports

PROGRAMS = Path(__file__).parent / "programs"


@dataclass
class Ended:
    """A process that has ended: its exit status and all that it printed."""

    status: int
    output: str
    seconds: float


def run_cluster(program: str, workers: int, *args: Sequence[str], timeout: float = 240) -> list[Ended]:
    """Start ``workers`` processes of ``programs/<program>``, wait for all, and leave none behind.

    ``args`` holds the arguments of each worker, or one list for all. With ``workers=1`` there is no
    TF_CONFIG.
    """
    environments = [os.environ | {"TF_CONFIG": ""}]
    if workers > 1:
        plan = tfdistr.tf_config(worker=[f"127.0.0.1:{port}" for port in free_ports(workers)])
        environments = [os.environ | environment for environment in plan.environments()]
    each = args if len(args) == workers else list(args) * workers
    began = time.monotonic()
    processes = [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / program), *arguments],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        for environment, arguments in zip(environments, each, strict=True)
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
