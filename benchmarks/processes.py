"""Starts the programs of the benchmarks, each worker on a core of its own, and waits for them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import tfdistr
from tfdistr.launch.ports import free_ports

HERE = Path(__file__).parent
MPIEXEC = str(Path(sys.executable).with_name("mpiexec"))
CORES = sorted(os.sched_getaffinity(0))
#: For all programs. They find the modules of this folder.
QUIET = {
    "PYTHONPATH": str(HERE), "RETICULATE_PYTHON": sys.executable, "TF_CONFIG": "",
    "TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "ERROR",
}  # fmt: skip

Command = list[str]


def python(program: str, *arguments: object, of: str = sys.executable) -> Command:
    """The command that runs a program of this folder."""
    return [of, str(HERE / program), *map(str, arguments)]


def pinned(command: Command, worker: int) -> Command:
    """``command``, on the core of this worker."""
    return ["taskset", "--cpu-list", str(CORES[worker % len(CORES)]), *command]


def mpiexec(command: Command, workers: int) -> Command:
    """``command`` as the ranks of an MPI job, each on its core."""
    ranks = [word for rank in range(workers) for word in (":", "-n", "1", *pinned(command, rank))]
    return [MPIEXEC, *ranks[1:]]


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


def exit_when_terminated() -> None:
    """End this process on SIGTERM as on Ctrl-C: with what it started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))


def run(
    commands: Sequence[Command], environments: Sequence[Mapping[str, str]] = (), timeout: float = 300
) -> list[str]:
    """Start all commands, wait for them, leave none behind, and return what each printed.

    Raises:
        RuntimeError: One failed, or they took longer than ``timeout`` seconds; with the end of its output.
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
        for process, err in zip(processes, errors, strict=True):
            try:
                status = process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                status = None
            if status != 0:
                err.seek(0)
                came = f"took more than {timeout:g} s" if status is None else f"ended with status {status}"
                raise RuntimeError(f"{' '.join(process.args)} {came}:\n{err.read()[-4000:]}")
        for out in outputs:
            out.seek(0)
        return [out.read() for out in outputs]


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):  # its children may still be there
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
