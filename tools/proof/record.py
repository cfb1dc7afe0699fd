"""Runs what the claims of the pages rest on, keeps what it prints, and brings the pages up to date.

    make proof                  # all parts: some hours, on a machine that does nothing else
    make proof T='speed start'  # these parts

Each part's output is docs/proof/NAME.txt. A part that fails, or that is interrupted, leaves the earlier one.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import time

import pages
from parts import PARTS, ROOT, Record

from tfdistr.utils.gpus import visible_gpus

sys.path.insert(0, str(ROOT / "benchmarks"))


def run(name: str) -> Record | None:
    """Run a part; None if its command failed."""
    import report  # of the benchmarks

    command = PARTS[name][1]
    print(f"\n==> {name}: {command}", flush=True)
    began, lines = time.monotonic(), []
    # Else the T of `make proof T=` would be the T of the command, too. "s": make prints no lines of its own.
    own = {"MAKEFLAGS": "s", "PYTHON": sys.executable}
    env = {name: value for name, value in os.environ.items() if name != "T"} | own
    with subprocess.Popen(
        ["sh", "-c", command], cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if not line.startswith("==> "):  # of the set-up
                lines.append(line.replace(str(ROOT), "."))
    if process.returncode:
        return None
    date = datetime.datetime.now(datetime.UTC).date()
    seconds = time.monotonic() - began
    made = f"{date}, commit {commit()}, {seconds:,.0f} s"
    return Record(name, command, made, report.machine(), "".join(lines))


def commit() -> str:
    """The commit of the checkout, and whether what runs was changed."""

    def git(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True)

    name = git("rev-parse", "--short=10", "HEAD").stdout.strip() or "unknown"
    return name + "-dirty" if git("status", "--porcelain", "--", ".", ":!docs").stdout else name


def what_is_missing(name: str) -> str | None:
    """What a part needs that is not there; None if all is."""
    if "$DATA_DIR" in PARTS[name][1] and not os.environ.get("DATA_DIR"):
        return "DATA_DIR, a folder with MNIST of TensorFlow Datasets"
    if name == "gpu" and not visible_gpus({}):
        return "an NVIDIA GPU, and none is visible (nvidia-smi, CUDA_VISIBLE_DEVICES)"
    return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="*", choices=list(PARTS), default=[])
    failed = []
    for name in parser.parse_args().parts or PARTS:
        if missing := what_is_missing(name):
            print(f"\n==> {name} is left out, and its earlier record stays: it needs {missing}")
        elif record := run(name):
            record.write()
        else:
            failed.append(name)
    import plots  # which needs matplotlib

    pages.update()
    plots.update()
    if failed:
        sys.exit(f"Failed, so their earlier outputs stay: {', '.join(failed)}")


if __name__ == "__main__":
    main()
