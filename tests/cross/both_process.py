"""The process with R and Python that evaluates rows (both.py), as tests ask it."""

import json
import os
import select
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
TIMEOUT = 180.0  # seconds for one way of a row


class Both:
    """The process; it is started again after a row that it has not survived."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def _start(self) -> None:
        self._log = tempfile.NamedTemporaryFile("w+", prefix="both-", suffix=".log")  # noqa: SIM115
        read, write = os.pipe()
        path = os.pathsep.join([str(HERE / "programs"), os.environ["PYTHONPATH"]])
        # By absolute path: embedded in a static Python, R could not load its modules otherwise.
        self._process = subprocess.Popen(
            [str(Path(sys.executable).absolute()), str(HERE / "both.py"), str(write)],
            stdin=subprocess.PIPE, stdout=self._log, stderr=self._log, text=True, pass_fds=[write],
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        os.close(write)
        self._replies = open(read, encoding="utf-8")  # noqa: SIM115

    def ask(self, row: dict[str, Any], way: str) -> Any:
        """What one way of a row gives."""
        return self.answer({"row": row, "way": way}, way)

    def answer(self, request: dict[str, Any], what: str) -> Any:
        """The answer to any request; ``what`` names it for the error."""
        if self._process is None:
            self._start()
        assert self._process
        assert self._process.stdin
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._replies], [], [], TIMEOUT)
        line = self._replies.readline() if ready else ""
        if not line:
            said = Path(self._log.name).read_text(errors="replace")[-4000:]
            self.end()
            pytest.fail(f"{what}: the process {'died' if ready else 'did not answer in time'}:\n{said}")
        return json.loads(line)

    def end(self) -> None:
        """End the process, if there is one."""
        if self._process is None:
            return
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._replies.close()
        self._log.close()
        self._process = None
