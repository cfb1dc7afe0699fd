"""benchmarks/gpu.py, without a GPU: what it would run, its table, and one run of it on CPUs."""

import json
import os
import subprocess
import sys

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
sys.path.insert(0, str(ROOT / "tools" / "proof"))
import gpu
import gpu_networks
import record

BENCHMARK = ROOT / "benchmarks" / "gpu.py"


def test_each_measurement_has_a_name_of_its_own():
    networks = list(gpu_networks.NETWORKS)
    for gpus in (1, 8):
        runs = gpu.runs(gpus, networks, gpu.PARTS, tiny=False)
        assert len({run.name for run in runs}) == len(runs)
        assert {run.part for run in runs} == ({"alone", "shared"} if gpus == 1 else set(gpu.PARTS))
    assert {run.options["workers"] for run in runs if run.task == "speed"} == {1, 2, 4, 8}
    assert {run.options.get("backend") for run in runs if run.part == "several"} == {"nccl", "mpi", "ring"}


def test_the_table_judges_what_has_a_bar():
    results = [
        {"part": "alone", "name": "a", "keras": 100.0, "tfdistr": 99.0},
        {"part": "alone", "name": "b", "keras": 100.0, "tfdistr": 90.0},
        {"part": "alone", "name": "c", "failed": "left out: no time"},
        {"part": "shared", "name": "d", "difference": 1e-6, "says": "ring"},
        {"part": "shared", "name": "e", "difference": 1e-6, "bound": 0.0},
        {"part": "several", "name": "f", "network": "seed", "workers": 1, "tfdistr": 100.0},
        {"part": "several", "name": "g", "network": "seed", "workers": 2, "tfdistr": 150.0},
    ]
    gpu.add_efficiency(results)
    assert gpu.table(results).splitlines() == [
        "bar     part     measurement",
        "ok      alone    a            100 -> 99 examples/s (0.99)",
        "MISSED  alone    b            100 -> 90 examples/s (0.90)",
        "-       alone    c            - (left out: no time)",
        "ok      shared   d            weights differ by 1.0e-06, ring",
        "MISSED  shared   e            weights differ by 1.0e-06",
        "-       several  f            100 examples/s",
        "-       several  g            150 examples/s, efficiency 75%",
    ]


def test_without_a_gpu_it_says_so():
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run([sys.executable, str(BENCHMARK)], env=environment, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith("Nothing was measured: no NVIDIA GPU is visible (nvidia-smi, CUDA")


def test_the_proof_leaves_it_out_without_a_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert record.what_is_missing("gpu").startswith("an NVIDIA GPU, and none is visible")
    assert record.what_is_missing("equality") is None


@pytest.mark.slow(reason="trains six times")
@pytest.mark.timeout(300)
def test_all_parts_run_on_cpus(tmp_path):
    file = tmp_path / "gpu.json"
    command = [
        sys.executable,
        str(BENCHMARK),
        "--tiny",
        "--networks",
        "seed",
        "--json",
        str(file),
    ]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    results = json.loads(file.read_text())["results"]
    assert not [result for result in results if "failed" in result]
    assert all(gpu.verdict(result) == "ok" for result in results if result["part"] == "shared")
