"""A fork of the fork server: whether it is safe, and the reset of state that it must not share.

A fork has the environment variables that libraries read at load from its server.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tfdistr.utils.processes import PARENT, end_with_parent


def become(request: Mapping[str, Any], files: Sequence[int], server: int) -> list[str]:
    """Make this fork the process that the client has requested, and return its program and arguments."""
    os.setpgid(0, 0)
    end_with_parent(signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
    _reset_signals()
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
        os.close(file)
    env = dict(request["env"])
    for name, file in zip(request["files"], files[3:], strict=True):
        os.set_inheritable(file, True)
        env[name] = str(file)
    if PARENT in env:  # the server is the parent now: it kills this process when the client exits
        env[PARENT] = str(server)
    _set_environment(env)
    os.chdir(request["folder"])
    os.umask(request["umask"])
    with contextlib.suppress(OSError):  # fewer cores than when the client looked
        os.sched_setaffinity(0, request["cores"])
    _reseed()
    end_without_destructors()
    argv = list(request["argv"])
    _show(argv)
    return argv


def set_command_line_of_r(words: Sequence[str]) -> None:
    """Make R's ``commandArgs()`` return ``words``, in a process in which R runs."""
    line = [os.fsencode(word) for word in words]
    ctypes.CDLL(None).R_set_command_line_arguments(len(line), (ctypes.c_char_p * len(line))(*line))


def _reset_signals() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _set_environment(env: Mapping[str, str]) -> None:
    """Set the variables of ``env``; those that libraries read at load are the same already."""
    first = (entry.partition(b"=")[0] for entry in Path("/proc/self/environ").read_bytes().split(b"\0"))
    # Variables that R has set for its own process since its start stay.
    for name in map(os.fsdecode, first):
        if name not in env and not is_read_at_load(name):
            os.environ.pop(name, None)
    os.environ.update((name, value) for name, value in env.items() if not is_read_at_load(name))


def _reseed() -> None:
    """Give this fork its own random numbers: Python reseeds its module in a fork, NumPy does not."""
    import tempfile

    import numpy as np

    np.random.seed()
    tempfile.tempdir = None


def end_without_destructors() -> None:
    """Make exit() skip the functions that libraries have registered before this call.

    Those functions wait for threads of the server, which a fork does not have, or abort without them. exit()
    still calls the functions that the fork registers: MPI reports there that the rank has finished.
    """
    library = ctypes.CDLL(None)
    library.fflush(None)
    with contextlib.suppress(AttributeError):  # on_exit is in glibc
        library.on_exit(library._exit, None)  # the last registered function runs first


def _show(argv: Sequence[str]) -> None:
    """Show the program's own arguments in the process table, as far as they fit."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end
    title = b"\0".join(map(os.fsencode, [sys.executable, *argv]))
    if len(title) >= end - begin:
        title = b"\0".join(map(os.fsencode, argv))
    if begin:
        ctypes.memmove(begin, title[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)


# Variables of the loader, Python, R, the locale, TensorFlow, Keras, their libraries, threads, GPUs and MPI.
_READ_AT_LOAD = re.compile(
    r"LD_.*|GLIBC_TUNABLES|MALLOC_.*|HOME|PATH|TZ|LANG|LANGUAGE|LC_.*|PYTHON.*|VIRTUAL_ENV|R_.*|RETICULATE_.*"
    r"|TF_.*|KERAS_.*|XLA_.*|TPU_.*|TFDS_.*|GRPC_.*|ABSL_.*|PROTOCOL_BUFFERS_.*|DNNL_.*|ONEDNN_.*"
    r"|OMP_.*|GOMP_.*|KMP_.*|MKL_.*|OPENBLAS_.*|BLIS_.*|NUMEXPR_.*|NPY_.*|VECLIB_.*"
    r"|CUDA_.*|CUDNN_.*|NVIDIA_.*|NCCL_.*|HIP_.*|ROCR_.*"
    r"|MPI4PY_.*|MPICH_.*|MPIR_.*|OMPI_MCA_.*|UCX_.*|FI_.*|HWLOC_.*"
)
# Set by a launcher for one process, or by R for its own session.
_OF_ONE_PROCESS = ("TF_CONFIG", "R_SESSION_TMPDIR")


def is_read_at_load(name: str) -> bool:
    """Return whether a server and its forks must have the same value of an environment variable."""
    return name not in _OF_ONE_PROCESS and _READ_AT_LOAD.fullmatch(name) is not None


def read_at_load(env: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of ``env`` that libraries read at load."""
    return {name: value for name, value in env.items() if is_read_at_load(name)}


def threads() -> frozenset[str]:
    """Return the threads of this process. Threads that idle since the imports do not harm a fork."""
    return frozenset(os.listdir("/proc/self/task"))


def why_unsafe(known: frozenset[str]) -> str | None:
    """Return why this process must not be forked now; None if it may. ``known`` threads are harmless."""
    if "tensorflow" in sys.modules:
        from tfdistr import tf_internals

        if tf_internals.context_initialized():
            return "TensorFlow has set up its devices in the fork server"
    if _uses_gpu():
        return "the fork server uses a GPU, which a fork cannot"
    new = threads() - known
    if new:
        return f"{len(new)} thread{'s' * (len(new) > 1)} more than after the imports run in the fork server"
    return None


def _uses_gpu() -> bool:
    """Return whether CUDA was initialized: it then has NVIDIA's devices open, or that of WSL."""
    for file in Path("/proc/self/fd").iterdir():
        try:
            if os.readlink(file).startswith(("/dev/nvidia", "/dev/dxg")):
                return True
        except OSError:  # the file of the listing itself
            continue
    return False
