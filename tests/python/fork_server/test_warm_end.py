"""The end of a session whose fork server still imports what workers need."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.timeout(120)
def test_a_session_ends_quietly_while_its_fork_server_starts(tmp_path: Path) -> None:
    code = (
        "import tfdistr\n"
        "cluster = tfdistr.local_cluster(1)\n"
        "from tfdistr.fork_server.servers import _servers\n"
        "print(*(server._process.pid for server in _servers._present.values()))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True,
        text=True, timeout=100,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not Path(f"/proc/{int(ended.stdout)}").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("tfdistr-warm-")] == []
