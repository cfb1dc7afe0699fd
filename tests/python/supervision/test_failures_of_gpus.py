"""The errors of workers whose GPU has no room, or whose NCCL has warned."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfdistr.errors import WorkerFailedError
from tfdistr.supervision.failures import Failure, worker_failed_error

HELD = (
    "Run nvidia-smi, which shows the processes that hold the GPU: end them, or choose other GPUs with "
    "CUDA_VISIBLE_DEVICES. If the memory is the job's own, pass smaller batches, or fewer workers a GPU."
)


def error_of(folder: Path, log: str, message: str | None = None, exit_code: int = 1) -> WorkerFailedError:
    (path := folder / "worker-1.log").write_text(log)
    process: Any = SimpleNamespace(log=path, host="b", pid=7)
    traceback = f"Traceback (most recent call last):\n{message}"
    event = {"worker": 1, "error_type": "InternalError", "message": message, "traceback": traceback}
    failure = Failure.reported(event, 0, 1) if message else Failure.exited(1, 0, exit_code)
    return worker_failed_error(failure, process, title="Worker 1 of 2", done=False)


@pytest.mark.parametrize(
    "message",
    [
        "CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory",
        "failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
        "OOM when allocating tensor with shape[4096,4096] and type float on /job:worker/task:1/device:GPU:0",
        "CUDA_ERROR_DEVICE_UNAVAILABLE: all CUDA-capable devices are busy or unavailable",
        "could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED",
        "failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED",
    ],
)
def test_a_gpu_without_room(message: str, tmp_path: Path) -> None:
    assert error_of(tmp_path, "", message).fix == HELD
    assert error_of(tmp_path, f"F0000 {message}\n", exit_code=-6).fix == HELD


@pytest.mark.parametrize(
    "message", ["OOM when allocating tensor on device:CPU:0", "no such file", "CUDA is fine"]
)
def test_other_errors(message: str, tmp_path: Path) -> None:
    assert error_of(tmp_path, "CUDA_ERROR_OUT_OF_MEMORY, but TensorFlow tried again", message).fix is None


def test_the_last_warnings_of_nccl(tmp_path: Path) -> None:
    warnings = [
        f"b:7:9 [0] net.cc:{number} NCCL WARN Connect failed: No route to host" for number in range(5)
    ]
    error = error_of(tmp_path, "\n".join(["a line", *warnings, "another"]), "NCCL cannot connect")
    said = error.message.partition("NCCL's warnings:\n")[2].partition("\n\n")[0]
    assert said.splitlines() == [f"  {line}" for line in warnings[2:]]
