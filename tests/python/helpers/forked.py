"""Workers that say of themselves what a fork may have wrong."""

import contextlib
import sys
from pathlib import Path
from typing import Any

from paths import WORKERS

from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.supervision.events import EventReader
from tfdistr.supervision.supervisor import run_workers

PROGRAM = [sys.executable, str(WORKERS / "forked.py")]


def states(run_dir: Path, workers: int = 2, **options: Any) -> list[dict[str, Any]]:
    """What the workers of a run tell of themselves."""
    run_workers(local_cluster(workers, **options), PROGRAM, run_dir)
    found = [event for event in EventReader(run_dir, workers).poll() if event["event"] == "state"]
    return sorted(found, key=lambda state: state["worker"])


def server_of(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):  # a guard may have ended
        return b"tfdistr.fork_server.server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False
