"""A script, the command that runs it, and what is left after it."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from elsewhere import lab, net
from launched import is_there
from scripts import PID, pids

__all__ = ["lab", "net", "start"]

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``tfdistr`` in a folder of its own, with a Python script of this text."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str, script: str = "", name: str = "train.py") -> subprocess.Popen[str]:
        (tmp_path / name).write_text(PID + script if name.endswith(".py") else script)
        process = subprocess.Popen(
            [sys.executable, "-m", "tfdistr", *words], cwd=tmp_path, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
    left = [pid for pid in pids(tmp_path) if is_there(pid)]
    for pid in left:
        os.kill(pid, 9)
    assert not left
