"""The GPU that a process takes, and the addresses by which workers know that they share one."""

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from clusters import run_commands

from tfdistr.utils import gpus
from tfdistr.utils.gpus import VISIBLE, addresses_of_gpus, take_gpu


@pytest.mark.parametrize(
    ("visible", "index", "workers", "taken"),
    [
        ("0,1,2,3", 2, 4, "2"),
        ("0,1", 3, 4, "1"),
        ("MIG-a,MIG-b", 1, 2, "MIG-b"),
        ("3", 1, 2, "3"),
        ("0,1", 0, 1, "0,1"),
        ("", 1, 2, ""),
    ],
)
def test_a_worker_takes_one_gpu_by_its_place_on_the_host(
    visible: str, index: int, workers: int, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "_of_this_machine", lambda: ("0", "1", "2", "3"))
    monkeypatch.setenv(VISIBLE, visible)
    monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", "false")  # the user's word counts
    take_gpu(index, workers)
    assert gpus.os.environ[VISIBLE] == taken
    assert gpus.os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "false"
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH")
    take_gpu(0, 1)
    assert gpus.os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == "true"


class _Cuda:
    """NVIDIA's driver, as far as it is asked. ``failing`` is the function that fails."""

    def __init__(self, failing: str = "") -> None:
        self._failing = failing

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: 100 if name == self._failing else self._call(name, *arguments)

    def _call(self, name: str, *arguments: Any) -> int:
        if name == "cuDeviceGetCount":
            arguments[0]._obj.value = 2
        if name == "cuDeviceGet":
            arguments[0]._obj.value = arguments[1]
        if name == "cuDeviceGetPCIBusId":
            arguments[0].value = f"0000:{arguments[2].value + 1}B:00.0".encode()
        return 0


@pytest.mark.parametrize("failing", ["", "cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetPCIBusId"])
def test_the_addresses_of_the_gpus_of_a_process(failing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: _Cuda(failing))
    assert addresses_of_gpus() == (() if failing else ("0000:1B:00.0", "0000:2B:00.0"))


def test_a_machine_without_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError("libcuda.so.1: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", absent)
    assert addresses_of_gpus() == ()


QUIET = """\
import os, sys
from tfdistr.tf_internals import runtime
from tfdistr.utils.interrupts import import_tensorflow
import_tensorflow()
import tensorflow as tf
tf.constant(1.0) + 1.0
with runtime._without_line():
    os.write(2, b"before\\nE0000 cuda_platform.cc:52] failed call to cuInit: no\\n")
    print("after", file=sys.stderr)
os._exit(0)
"""


def test_a_session_does_not_see_that_tensorflow_finds_no_gpu(tmp_path: Path) -> None:
    (program := tmp_path / "program.py").write_text(QUIET)
    (ended,) = run_commands([[sys.executable, str(program)]], [dict(os.environ)], 100)
    assert ended.output.splitlines()[-2:] == ["before", "after"]
    assert "cuInit" not in ended.output
