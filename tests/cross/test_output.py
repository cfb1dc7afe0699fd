"""What workers print stays in order and whole: in their log files, and in the session that follows them."""

import os
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slow import mostly_slow

PROGRAMS = Path(__file__).parent / "programs"
lines: Callable[[int], list[str]] = runpy.run_path(str(PROGRAMS / "talks.py"))["lines"]

pytestmark = pytest.mark.timeout(200)

CASES = [("python", "warm"), ("r", "warm"), ("r", "cold")]


# Slow: starts two workers for each language.
@pytest.mark.parametrize(("language", "start"), mostly_slow(CASES, quick=CASES[:1]))
def test_the_order_is_kept(tmp_path: Path, language: str, start: str) -> None:
    interpreter = [sys.executable] if language == "python" else ["Rscript", "--no-init-file"]
    program = [*interpreter, "talks.py" if language == "python" else "talks.R"]
    paths = [str(PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])]
    utf8 = {"LC_ALL": "C.UTF-8", "PYTHONPATH": os.pathsep.join(paths)}
    environment: dict[str, Any] = {**os.environ, **utf8}
    run_dir = tmp_path / "run"
    ended = subprocess.run(
        [*program, str(run_dir), start], cwd=PROGRAMS, env=environment, timeout=150,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout[-3000:]
    for worker in range(2):
        log = run_dir.joinpath("logs", f"worker-{worker}.log").read_text("utf-8")
        assert marked(log, f"@{worker} ") == lines(worker)
        shown = marked(ended.stdout, f"[worker {worker}] @{worker} ")
        assert shown == [f"[worker {worker}] {line}" for line in lines(worker)]


def marked(text: str, mark: str) -> list[str]:
    """The lines with a mark; others print, too."""
    return [line for line in text.split("\n") if mark in line]
