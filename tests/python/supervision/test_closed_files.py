"""Workers whose code has closed the files in which they report."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tfdistr.supervision.events import EventReader, EventWriter

CLOSE = {
    "objects": "sys.stdout.close(); sys.stderr.close()",
    "numbers": "print('left', end=''); os.closerange(0, 3)",
}
FAIL = """
import os, sys
from tfdistr.supervision.reporting import process_of_job
with process_of_job(sys.argv[1], 0) as process:
    {close}
    process.failed(ValueError("my own error"))
os._exit(7)
"""
END = """
import os, sys
from tfdistr.jobs import worker
def run(*arguments):
    {close}
    return 7
worker.run_worker = run
worker.main()
"""


@pytest.mark.parametrize("close", CLOSE.values(), ids=CLOSE)
@pytest.mark.parametrize("program", [FAIL, END], ids=["error", "end"])
def test_the_end_of_a_process_is_its_own(tmp_path: Path, program: str, close: str) -> None:
    command = [sys.executable, "-c", program.format(close=close), str(tmp_path), "0"]
    assert subprocess.run(command, timeout=60).returncode == 7
    if program is FAIL:
        assert EventReader(tmp_path, 1).poll()[-1]["message"] == "my own error"


def test_events_never_go_into_another_file(tmp_path: Path) -> None:
    writer = EventWriter(tmp_path, 0)
    writer.write("ready")
    os.close(writer._file)
    with open(tmp_path / "of_user", "wb", buffering=0) as other:
        assert other.fileno() == writer._file
        writer.write("note", message="still there")
        assert (tmp_path / "of_user").read_bytes() == b""
    assert [event["event"] for event in EventReader(tmp_path, 1).poll()] == ["ready", "note"]
    writer.close()
