"""What tfdistr does on NVIDIA GPUs, in less than 8 minutes: speed beside Keras, equality, a killed worker.

    python benchmarks/gpu.py                  # on a machine with one GPU or more, with tfdistr installed
    python benchmarks/gpu.py --json gpu.json
    python benchmarks/gpu.py --tiny           # a minute of what it does, on CPUs

It needs this folder and an installed tfdistr. Each measurement has a process of its own (gpu_runs.py). What
the time does not suffice for is left out, and the table says so.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import processes
import report
from gpu_networks import NETWORKS

import tfdistr
from tfdistr.utils.gpus import visible_gpus

#: The largest difference of weights that still counts as equal, and the smallest speed beside Keras's fit().
EQUAL, AS_FAST = 1e-3, 0.97
PARTS = ("alone", "shared", "several")
NO_GPU = (
    "Nothing was measured: no NVIDIA GPU is visible (nvidia-smi, CUDA_VISIBLE_DEVICES). "
    "Run this on a machine with one, or pass --tiny to see on CPUs what runs."
)


@dataclass(frozen=True)
class Run:
    """One measurement: its part, what gpu_runs.py is to do, and the variables of its process."""

    part: str
    name: str
    task: str
    options: dict[str, Any]
    env: dict[str, str] = field(default_factory=dict)


def runs(gpus: int, networks: Sequence[str], parts: Sequence[str], *, tiny: bool) -> list[Run]:
    """Return the measurements, those that matter most first."""
    made = [*_alone(networks), *_shared()]
    if gpus > 1 or tiny:
        made += _several(max(gpus, 2), networks, on_cpus=tiny)
    return [run for run in made if run.part in parts]


def _alone(networks: Sequence[str]) -> Iterator[Run]:
    for dtype in ("float32", "mixed_float16"):
        for xla in (False, True):
            for network in networks:
                name = f"{network}, {dtype}, {'XLA' if xla else 'no XLA'}"
                yield Run("alone", name, "beside_keras", {"network": network, "dtype": dtype, "xla": xla})


def _shared() -> Iterator[Run]:
    exact = {"NVIDIA_TF32_OVERRIDE": "0"}
    for xla in (False, True):
        name = f"two workers that share it, {'XLA' if xla else 'no XLA'}"
        yield Run("shared", name, "equality", {"workers": 2, "xla": xla}, exact)
    yield Run("shared", "virtual workers twice", "twice", {}, exact | {"TF_DETERMINISTIC_OPS": "1"})
    yield Run("shared", "a killed worker", "killed", {})


def _several(gpus: int, networks: Sequence[str], *, on_cpus: bool) -> Iterator[Run]:
    each = None if on_cpus else 1
    backends = ("mpi", "ring") if on_cpus else ("nccl", "mpi", "ring")
    for backend in backends:
        options = {"workers": gpus, "backend": backend, "each": each, "xla": False}
        yield Run("several", f"{gpus} workers, {backend}: equality", "equality", options)
    for network in reversed(networks):
        for workers in [count for count in (1, 2, 4, 8) if count <= gpus]:
            for backend in backends if workers > 1 else backends[:1]:
                options = {"network": network, "workers": workers, "backend": backend, "each": each}
                yield Run("several", f"{network}, {workers} workers, {backend}", "speed", options)


def measured(run: Run, seconds: float, *, tiny: bool) -> dict[str, Any]:
    """Make a measurement in a process of its own; its result, or "failed" and the reason."""
    if seconds <= 0:
        return {"failed": "left out: no time"}
    with tempfile.TemporaryDirectory(prefix="tfdistr-gpu-") as folder:
        file = Path(folder, "result.json")
        call = json.dumps({"task": run.task, "tiny": tiny, "file": str(file), **run.options})
        env = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TMPDIR": folder, **run.env}
        try:
            processes.run([processes.python("gpu_runs.py", call)], [env], timeout=seconds)
        except processes.Failed as error:
            return {"failed": error.reason}
        return dict(json.loads(file.read_text()))


def described(result: dict[str, Any]) -> str:
    """Return a result as a cell of the table."""
    if "failed" in result:
        return f"- ({result['failed']})"
    parts = []
    if "keras" in result:
        ratio = result["tfdistr"] / result["keras"]
        parts.append(f"{result['keras']:,.0f} -> {result['tfdistr']:,.0f} examples/s ({ratio:.2f})")
    elif "tfdistr" in result:
        parts.append(f"{result['tfdistr']:,.0f} examples/s")
    if "efficiency" in result:
        parts.append(f"efficiency {result['efficiency']:.0%}")
    if "difference" in result:
        parts.append(f"weights differ by {result['difference']:.1e}")
    return ", ".join([*parts, *([result["says"]] if "says" in result else [])])


def verdict(result: dict[str, Any]) -> str:
    """Return "ok", "MISSED", or "-" for a result without a bar."""
    if "failed" in result:
        return "-"
    bars = [result["difference"] <= result.get("bound", EQUAL)] if "difference" in result else []
    bars += [result["tfdistr"] >= AS_FAST * result["keras"]] if "keras" in result else []
    bars += [result["well"]] if "well" in result else []
    return "-" if not bars else "ok" if all(bars) else "MISSED"


def add_efficiency(results: Sequence[dict[str, Any]]) -> None:
    """Add to each speed on several workers its part of so many times the speed of one."""
    one = {r["network"]: r["tfdistr"] for r in results if r.get("workers") == 1 and "tfdistr" in r}
    for result in results:
        if result.get("workers", 1) > 1 and "tfdistr" in result and result["network"] in one:
            result["efficiency"] = result["tfdistr"] / (result["workers"] * one[result["network"]])


def table(results: Sequence[dict[str, Any]]) -> str:
    """Return the table of all results."""
    rows = [(verdict(r), r["part"], r["name"], described(r)) for r in results]
    return report.table(("bar", "part", "measurement", ""), rows, left=range(4))


def machine(gpus: int) -> str:
    """Return the cards, the driver, the machine and the versions, in a line."""
    cards = "CPUs only"
    if gpus:
        query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader"]
        try:
            found = subprocess.run(query, capture_output=True, text=True).stdout.strip().splitlines()
        except OSError:
            found = []
        cards = f"{gpus} x {found[0] if found else 'an NVIDIA GPU'}"
    return f"{cards}; {report.machine()}, tfdistr {tfdistr.__version__}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, help="the file for all results")
    parser.add_argument("--minutes", type=float, default=7.5, help="when it ends at the latest")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS)
    parser.add_argument("--networks", nargs="*", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--tiny", action="store_true", help="small networks and two steps, on CPUs")
    given = parser.parse_args()
    if given.tiny:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    gpus = len(visible_gpus({}))
    if not gpus and not given.tiny:
        sys.exit(NO_GPU)
    end = time.monotonic() + 60 * given.minutes
    results = []
    for run in runs(gpus, given.networks, given.parts, tiny=given.tiny):
        print(f"{run.part}: {run.name}", file=sys.stderr, flush=True)
        result = measured(run, end - time.monotonic(), tiny=given.tiny)
        results.append({"part": run.part, "name": run.name, **run.options, **result})
    add_efficiency(results)
    where = machine(gpus)
    report.show(where, table(results), _LEGEND)
    if given.json:
        document = {"machine": where, "tiny": given.tiny, "results": results}
        given.json.write_text(json.dumps(document, indent=1) + "\n")


_LEGEND = f"""Bars: one worker is at least {AS_FAST:.2f} times as fast as Keras's fit();
weights on several workers are within {EQUAL:g} of those on one (virtual workers: equal);
the error after a killed worker names it within 30 s."""


if __name__ == "__main__":
    main()
