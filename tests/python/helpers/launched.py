"""Programs in the place of workers, and what of a job is in the process table and in its folder."""

import contextlib
import glob
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paths import WORKERS

#: Serves forks that need no TensorFlow, in the place of `servers._PYTHON`: it is there at once.
SMALL_SERVER = (
    "-P", "-c", "import tfdistr.fork_server.server as server; server._MODULES = (); server.main()",
)  # fmt: skip
CARRIERS = ["processes", "warm"]


def command(behaviours: str) -> list[str]:
    return [sys.executable, str(WORKERS / "worker.py"), behaviours]


def is_there(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for(condition: Callable[[], object], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def processes_of(run_dir: Path) -> dict[int, str]:
    """What has the run directory in its environment or in its command: all that its launcher has started."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid = int(process.name)
            texts = [(process / name).read_bytes() for name in ("environ", "cmdline")]
            server = b"tfdistr.fork_server.server" in texts[1]  # which serves other runs, too
            others = server or pid == os.getpid()
            if not others and any(os.fsencode(run_dir) in text for text in texts) and is_there(pid):
                found[pid] = texts[1].replace(bytes(1), b" ").decode()
    return found


def events_in(run_dir: Path) -> list[dict[str, Any]]:
    texts = [Path(path).read_text() for path in glob.glob(f"{run_dir}/workers/*/events.jsonl")]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def when_ready(workers: int, act: Callable[[], object]) -> Callable[[dict[str, Any]], object]:
    """Looks at the events of a job; calls ``act`` in a thread when all workers are ready."""
    ready: set[int] = set()

    def look(event: dict[str, Any]) -> None:
        if event["event"] == "ready" and event["worker"] not in ready:
            ready.add(event["worker"])
            if len(ready) == workers:
                threading.Thread(target=act).start()

    return look


def assert_output_comes(job: Any, *arguments: Any) -> None:
    """Two workers talk: their lines come while they run, and are in their logs."""

    def read(event: dict[str, Any]) -> None:
        if event["event"] == "log" and event["line"] == "caf\ufffd [bold]x":
            (job.run_dir / f"read-{event['worker']}").touch()  # without it the worker fails

    job.run("talk", *arguments, look=read, follow=True)
    for worker in range(2):
        lines = [e["line"] for e in job.events if e["event"] == "log" and e["worker"] == worker]
        expected = [f"hello from {worker}", "to stderr", "100%", "caf\ufffd [bold]x", "the last words"]
        assert sorted(lines) == sorted(expected)
        log = (job.run_dir / "logs" / f"worker-{worker}.log").read_bytes()
        assert log.endswith(b"the last words")
