"""The Python loop of a vignette, as it is printed there, gives with two workers what one gives.

The R code of vignettes is run by testthat.
"""

import os
import re
import sys
from pathlib import Path

import pytest
from clusters import run_commands
from paths import ROOT

from tfdistr.network.ports import free_ports

VIGNETTE = ROOT / "vignettes/custom-loops.Rmd"
COLUMNS = ["epoch", "loss", "accuracy", "val_loss", "val_accuracy"]


def chunk(text: str, label: str) -> str:
    """The code in the vignette's chunk of that name."""
    (code,) = re.findall(rf"^```{{python {label}}}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return code


def table(text: str) -> list[list[float]]:
    """The numbers of the history in what was printed; R prints the number of a row before them."""
    lines = [line.split() for line in text.splitlines()]
    begin = lines.index(COLUMNS)
    return [[float(number) for number in row[-len(COLUMNS) :]] for row in lines[begin + 1 : begin + 6]]


def output(program: Path) -> str:
    """What a program and the processes that it starts print."""
    (ended,) = run_commands(
        [[sys.executable, str(program)]], [os.environ | {"TF_CONFIG": ""}], 200, start_warm=False
    )
    assert ended.status == 0, ended.output[-3000:]
    return ended.output


@pytest.mark.slow(reason="trains with one worker and with two")
@pytest.mark.timeout(500)
@pytest.mark.usefixtures("with_pandas_once")
def test_the_loop_prints_the_same_history_with_one_worker_and_with_two(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the second program names the first one's file
    text = VIGNETTE.read_text()
    loop, start = tmp_path / "custom_loop.py", tmp_path / "start.py"
    loop.write_text(chunk(text, "loop-python"))
    code = chunk(text, "start-python")
    for printed, port in zip(("10001", "10002"), free_ports(2), strict=True):
        assert printed in code
        code = code.replace(printed, str(port))
    start.write_text(code)

    one, two = table(output(loop)), table(output(start))
    # The last printed digit may be rounded the other way.
    for row, other in zip(one, two, strict=True):
        assert row == pytest.approx(other, abs=1.01e-4)
    assert [row[0] for row in one] == [1, 2, 3, 4, 5]
    # On another processor other kernels may train; what the vignette shows must be about right there.
    for row, shown in zip(one, table(text), strict=True):
        assert row == pytest.approx(shown, abs=0.05)
