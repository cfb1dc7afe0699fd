"""The NVIDIA GPUs that processes of this machine see. TensorFlow is not asked: it would take the GPUs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from tfdistr.errors import ArgumentError

_DRIVER = Path("/proc/driver/nvidia/gpus")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
GROWTH = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""With it a process takes memory of a GPU as it needs it. Without it the first process takes all."""


def visible_gpus(env: Mapping[str, str]) -> tuple[str, ...]:
    """The GPUs that processes with these environment variables see, as CUDA_VISIBLE_DEVICES names them."""
    visible = env.get(_VISIBLE, os.environ.get(_VISIBLE))
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return ()
    there = _of_this_machine()
    if visible is None or not there:
        return there
    return tuple(name.strip() for name in visible.split(",") if name.strip())


def one_gpu_each(env: Mapping[str, str]) -> tuple[str, ...]:
    """The visible GPUs, one for each worker.

    Raises:
        ArgumentError: There is no visible GPU.
    """
    gpus = visible_gpus(env)
    if not gpus:
        raise ArgumentError(
            '`workers="gpus"` starts a worker for each GPU of NVIDIA.',
            received="no GPU that processes here see (by nvidia-smi and CUDA_VISIBLE_DEVICES)",
            fix="Pass the number of workers, such as workers=2, to train on the CPU.",
        )
    return gpus


def _of_this_machine() -> tuple[str, ...]:
    with contextlib.suppress(OSError):
        if listed := sorted(_DRIVER.iterdir()):
            return tuple(map(str, range(len(listed))))
    program = shutil.which("nvidia-smi")
    return tuple(map(str, range(_listed_by(program)))) if program else ()


@lru_cache(maxsize=1)
def _listed_by(program: str) -> int:
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines()) if not listed.returncode else 0
