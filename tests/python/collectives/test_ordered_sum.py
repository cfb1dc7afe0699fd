"""Sums in the order of a tree: their bits, and how many bytes they send."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from clusters import PROGRAMS, run_cluster

pytestmark = pytest.mark.timeout(300)

NUMBERS = 600_002


def found(folder: Path, workers: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(workers)]


def ring_minimum(workers: int) -> float:
    """Bytes that a worker must send at least for an all-reduce of these float32 numbers."""
    return 2 * (workers - 1) / workers * 4 * NUMBERS


@pytest.mark.slow(reason="starts three or four processes with TensorFlow")
def test_a_ring_gets_the_bits_of_the_tree(tmp_path):
    for ended in run_cluster("ordered_sum.py", 3, [str(tmp_path), "8"], timeout=200):
        assert ended.status == 0, ended.output[-3000:]
    assert all(all(worker["same"].values()) for worker in found(tmp_path, 3))


@pytest.mark.slow(reason="starts three or four processes with TensorFlow")
def test_a_ring_sends_hardly_more_than_it_must(tmp_path):
    workers = 4
    alone = ["unshare", "-Urn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if not shutil.which("ip") or subprocess.run([*alone, "true"], capture_output=True).returncode != 0:
        pytest.skip("no network namespaces")
    program = [sys.executable, str(PROGRAMS / "ordered_sum.py")]
    command = [*alone, *program, "--cluster", str(tmp_path), str(workers), "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    # What crossed the loopback device, of all workers together.
    each = [worker["bytes"]["many"] / workers for worker in found(tmp_path, workers)]
    assert 0.99 * ring_minimum(workers) <= min(each)
    assert max(each) <= 1.3 * ring_minimum(workers)
