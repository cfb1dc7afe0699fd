"""The NVIDIA GPUs of this machine, and those that a process sees.

Names of GPUs are those of CUDA_VISIBLE_DEVICES: indices, or UUIDs such as "MIG-..." for a slice of a card.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from tfdistr.errors import ArgumentError
from tfdistr.utils.describe import number_of
from tfdistr.utils.processes import run_program

VISIBLE = "CUDA_VISIBLE_DEVICES"
NO_GPU = "-1"
GROWTH = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
"""With it a process allocates GPU memory as needed. Without it the first process allocates all."""
_DRIVER = Path("/proc/driver/nvidia/gpus")
_LISTED = re.compile(r"^(?:GPU (\d+):|\s+MIG .*\(UUID: (MIG-[^)]+)\))")
_MIG = "MIG-"
# What TensorFlow says of a GPU without free memory, or that another process has for itself.
_HELD = re.compile(
    r"CUDA_ERROR_OUT_OF_MEMORY|CUDA_ERROR_DEVICE_UNAVAILABLE|CU(?:DNN|BLAS)_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)"
    r"|CUDA.*\b(?:out of memory|busy or unavailable)|OOM when allocating.*GPU|implicit initialization on GPU"
)
_LONGEST_ADDRESS = 32  # characters of a PCI address


def visible_gpus(env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names, as in CUDA_VISIBLE_DEVICES, of the GPUs that are visible with these variables."""
    visible = env.get(VISIBLE, os.environ.get(VISIBLE))
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        return ()
    there = _of_this_machine()
    if visible is None or not there:
        return there
    return tuple(name.strip() for name in visible.split(",") if name.strip())


def gpus_of_workers(gpus: Sequence[str], workers: int, each: int | None) -> tuple[str, ...]:
    """Return CUDA_VISIBLE_DEVICES of each worker of a machine; empty if it is to stay as it is.

    Args:
        each: The number of GPUs of a worker; 0 hides all. With None, several workers see one GPU each of
            several. They take turns if there are fewer GPUs than workers.
    """
    if each is None:
        several = workers > 1 and len(gpus) > 1
        return tuple(gpus[index % len(gpus)] for index in range(workers)) if several else ()
    if each > 1 and of_one_process(gpus) < len(gpus):
        raise ArgumentError(
            "A worker can use one MIG slice: CUDA shows a process no more of them.",
            received=f"gpus_per_worker={each}, and the GPUs {', '.join(gpus)}",
            fix="Pass gpus_per_worker=1, or make larger slices.",
        )
    shares = [gpus[index * each : (index + 1) * each] for index in range(workers)]
    return tuple(",".join(share) or NO_GPU for share in shares)


def of_one_process(gpus: Sequence[str]) -> int:
    """Return how many of the visible GPUs CUDA shows to a process: one, if there is a slice of a card."""
    return 1 if any(name.startswith(_MIG) for name in gpus) else len(gpus)


def too_few_gpus(
    workers: int, each: int, there: int, source: str = "nvidia-smi, CUDA_VISIBLE_DEVICES"
) -> str:
    """Return what an error says that it received if a machine has too few GPUs."""
    count = f"{number_of(workers, 'worker')} with {each} each"
    return f"{count}, and {there or 'no'} visible GPU{'s' * (there != 1)} ({source})"


def take_gpu(index: int, workers: int) -> None:
    """Leave this process, worker ``index`` of those of a machine, one of several GPUs, and memory as needed.

    CUDA reads the variables when it starts, so call this before TensorFlow looks for GPUs.
    """
    for name, value in GROWTH.items():
        os.environ.setdefault(name, value)
    if own := gpus_of_workers(visible_gpus({}), workers, None):
        os.environ[VISIBLE] = own[index]


def fix_for_gpu(text: str) -> str | None:
    """Return the fix for an error about a GPU that has no room for this process; None for other errors."""
    if not _HELD.search(text):
        return None
    return (
        "Run nvidia-smi, which shows the processes that hold the GPU: end them, or choose other GPUs with "
        "CUDA_VISIBLE_DEVICES. If the memory is the job's own, pass smaller batches, or fewer workers a GPU."
    )


def addresses_of_gpus() -> tuple[str, ...]:
    """Return the PCI addresses of the GPUs that CUDA shows to this process, in CUDA's order.

    The slices of a card have one address. It is empty without NVIDIA's driver. This starts CUDA.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count, device = ctypes.c_int(), ctypes.c_int()
    address = ctypes.create_string_buffer(_LONGEST_ADDRESS)
    if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    found = []
    for index in range(count.value):
        failed = cuda.cuDeviceGet(ctypes.byref(device), index)
        if failed or cuda.cuDeviceGetPCIBusId(address, _LONGEST_ADDRESS, device):
            return ()
        found.append(address.value.decode())
    return tuple(found)


def _of_this_machine() -> tuple[str, ...]:
    program = shutil.which("nvidia-smi")
    if program and (listed := _listed_by(program)):
        return listed
    with contextlib.suppress(OSError):
        return tuple(map(str, range(len(list(_DRIVER.iterdir())))))
    return ()


@lru_cache(maxsize=1)
def _listed_by(program: str) -> tuple[str, ...]:
    """Return the names of the GPUs that nvidia-smi lists; the slices of a card take its place."""
    ended = run_program([program, "-L"], 30.0)
    found: list[str] = []
    for line in () if ended.failure else ended.output.splitlines():
        match = _LISTED.match(line)
        if match and match[2]:
            if found and not found[-1].startswith(_MIG):
                found.pop()
            found.append(match[2])
        elif match:
            found.append(match[1])
    return tuple(found)
