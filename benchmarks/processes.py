"""Starts the programs of the benchmarks, each worker on a core of its own, and waits for them."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import tfdistr
from tfdistr.network.ports import free_ports

HERE = Path(__file__).parent
CORES = sorted(os.sched_getaffinity(0))
#: For all programs. They find the modules of this folder.
QUIET = {
    "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}".rstrip(os.pathsep),
    "RETICULATE_PYTHON": sys.executable, "TF_CONFIG": "",
    "TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "ERROR",
}  # fmt: skip

Command = list[str]


class Failed(RuntimeError):
    """A program failed; ``reason`` is why, in a line."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def environment(name: str) -> str:
    """The Python of an environment that tools/setup-bench.sh makes."""
    return str(HERE.parent / ".cache" / name / "bin" / "python")


def python(program: str, *arguments: object, of: str = sys.executable) -> Command:
    """The command that runs a program of this folder.

    Raises:
        Failed: The environment of ``of`` is not installed.
    """
    if not Path(of).exists():
        raise Failed(f"{of} does not exist: see tools/setup-bench.sh", "not installed")
    return [of, str(HERE / program), *map(str, arguments)]


def fits(calls: Sequence[Mapping[str, object]], language: str = "Python") -> Command:
    """The command that trains in one session, by the calls of fit() that fit.py has, and fit.R."""
    if language == "Python":
        return python("fit.py", json.dumps(calls))
    given = [{name: value for name, value in call.items() if value is not None} for call in calls]
    return ["Rscript", "--no-init-file", str(HERE / "fit.R"), json.dumps(given)]


def pinned(command: Command, worker: int) -> Command:
    """``command``, on the core of this worker."""
    return ["taskset", "--cpu-list", str(CORES[worker % len(CORES)]), *command]


def tf_config(workers: int) -> list[dict[str, str]]:
    """The environment of each worker of a TensorFlow cluster."""
    return tfdistr.tf_config(worker=[f"127.0.0.1:{port}" for port in free_ports(workers)]).environments()


def torchrun(workers: int) -> list[dict[str, str]]:
    """The environment of each worker of a PyTorch job on this machine."""
    (port,) = free_ports(1)
    return [
        {"RANK": str(rank), "WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
         "GLOO_SOCKET_IFNAME": "lo"}
        for rank in range(workers)
    ]  # fmt: skip


def run(
    commands: Sequence[Command], environments: Sequence[Mapping[str, str]] = (), timeout: float = 300
) -> list[str]:
    """Start all commands, wait for them, leave none behind, and return what each printed.

    Raises:
        Failed: One failed, or they took longer than ``timeout`` seconds; with the end of its output.
    """
    given = list(environments) or [{}] * len(commands)
    end = time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in commands]
        errors = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in commands]
        processes = []
        for command, environment, out, err in zip(commands, given, outputs, errors, strict=True):
            process = subprocess.Popen(
                command, env=os.environ | QUIET | environment, cwd=HERE.parent, stdin=subprocess.DEVNULL,
                stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
            stack.callback(_end, process)
            processes.append(process)
        # The first that fails is the cause: its peers fail after it, or wait for it.
        waiting = dict(zip(processes, errors, strict=True))
        while waiting:
            for process, err in list(waiting.items()):
                status = process.poll()
                if status == 0:
                    del waiting[process]
                elif status is not None:
                    raise _failed(process.args, f"ended with status {status}", err)
                elif time.monotonic() > end:
                    raise _failed(process.args, f"took more than {timeout:g} s", err)
            time.sleep(0.02)
        for out in outputs:
            out.seek(0)
        return [out.read() for out in outputs]


def _failed(command: Command, what: str, err: IO[str]) -> Failed:
    err.seek(0)
    text = err.read()
    raised = re.findall(r"^(?:\[rank\d+\]: )?((?:\w+\.)*\w*(?:Error|Exception)\b.*)$", text, re.MULTILINE)
    reason = f"{what}: {raised[-1]}" if raised else what
    return Failed(f"{' '.join(command)} {what}:\n{text[-4000:]}", reason[:150])


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # its children may still be there
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
