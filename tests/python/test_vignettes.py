"""The training loops of the vignettes, as they are printed there, give with two workers what one gives."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from paths import ROOT
from slow import mostly_slow

import tfdistr
from tfdistr.launch.ports import free_ports

pytestmark = pytest.mark.timeout(500)

VIGNETTES = ROOT / "vignettes"
COLUMNS = ["epoch", "loss", "accuracy", "val_loss", "val_accuracy"]

# Language: the vignette, the file with the loop, and what runs a file.
LOOPS = {
    "python": ("custom-loop-python.Rmd", "custom_loop.py", [sys.executable]),
    "r": ("custom-loop.Rmd", "custom_loop.R", ["Rscript"]),
}


def chunk(text: str, language: str, label: str) -> str:
    """The code in the vignette's chunk of that name."""
    (code,) = re.findall(rf"^```{{{language} {label}}}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return code


def table(text: str) -> list[list[float]]:
    """The numbers of the history in what was printed; R puts the number of the row before them."""
    lines = [line.split() for line in text.splitlines()]
    begin = lines.index(COLUMNS)
    rows = [line[-len(COLUMNS) :] for line in lines[begin + 1 : begin + 6]]
    return [[float(number) for number in row] for row in rows]


def output(command: Sequence[str], folder: Path, seconds: float = 200) -> str:
    """What a program and the processes that it starts print; none of them is there afterwards."""
    mark = f"TFDISTR_TEST={uuid.uuid4()}"
    env = os.environ | {"TF_CONFIG": "", "PYTHONPATH": str(Path(tfdistr.__file__).parents[1])}
    env |= dict([mark.split("=")])
    log = folder / "output"
    try:
        with log.open("w") as file:
            ended = subprocess.run(
                command, cwd=folder, env=env, stdout=file, stderr=subprocess.STDOUT, timeout=seconds
            )
    finally:
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
    assert ended.returncode == 0, log.read_text()[-3000:]
    return log.read_text()


@pytest.mark.parametrize("language", mostly_slow(LOOPS, quick=[]))
def test_the_loop_prints_the_same_history_with_one_worker_and_with_two(language, tmp_path):
    vignette, name, runs = LOOPS[language]
    if shutil.which(runs[0]) is None:
        pytest.skip(f"{runs[0]} is not installed")
    text = (VIGNETTES / vignette).read_text()
    loop, start = tmp_path / name, tmp_path / f"start-{name}"
    loop.write_text(chunk(text, language, "loop"))
    code = chunk(text, language, "start")
    for printed, port in zip(("10001", "10002"), free_ports(2), strict=True):
        assert printed in code
        code = code.replace(printed, str(port))
    start.write_text(code)

    one = table(output([*runs, str(loop)], tmp_path))
    two = table(output([*runs, str(start)], tmp_path))
    # The last printed digit may be rounded the other way.
    for row, other in zip(one, two, strict=True):
        assert row == pytest.approx(other, abs=1.01e-4)
    assert [row[0] for row in one] == [1, 2, 3, 4, 5]
    # On another processor other kernels may train; what the vignette shows must be about right there.
    for row, shown in zip(one, table(text), strict=True):
        assert row == pytest.approx(shown, abs=0.05)
