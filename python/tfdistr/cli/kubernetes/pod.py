"""The process of a pod, ``tfdistr kubernetes worker SCRIPT``, which starts the script and reports its end.

It is process 1 of the container. The kernel gives process 1 no signal that it does not handle, so the script
is a process of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tfdistr.cli.script import WORKER
from tfdistr.cli.script_options import check_script
from tfdistr.errors import ArgumentError
from tfdistr.rendezvous.pods import place_in_job
from tfdistr.supervision.events import events_path
from tfdistr.utils.processes import PARENT
from tfdistr.utils.tuning import tuned_environment

#: The variable with the file from which Kubernetes takes the message of a container that has ended.
MESSAGE = "TFDISTR_KUBERNETES_MESSAGE"
#: The exit status of a worker that ended because another worker failed. The Job does not count it.
PEER_STATUS = 76
_LONGEST = 4096  # bytes that Kubernetes keeps of a message
_TRACEBACK = 2000


def run_in_pod(script: str, arguments: list[str]) -> int:
    """Run a script as the worker of this pod, and return its exit status; a failure becomes the message."""
    place = place_in_job()
    if place is None:
        raise ArgumentError(
            "`tfdistr kubernetes worker` is what a pod of `tfdistr kubernetes` runs.",
            received="a process without the variables of such a pod",
            fix="Write: tfdistr kubernetes write -n 4 train.py",
        )
    check_script("script", script)
    run_dir = tempfile.mkdtemp(prefix="tfdistr-")
    try:
        status = _wait([*WORKER, os.path.abspath(script), *arguments, run_dir, str(place[0])])
        failed = _failure(run_dir, place[0])
        if status and os.environ.get(MESSAGE):
            Path(os.environ[MESSAGE]).write_text(message(failed, status), encoding="utf-8")
        return _status_of_pod(status, failed)
    finally:
        shutil.rmtree(run_dir, ignore_errors=True)


def _wait(command: list[str]) -> int:
    """Run a process in a group of its own, which gets SIGTERM, and return its exit status."""
    started: list[subprocess.Popen[bytes]] = []
    signalled = False

    def pass_on(*_: object) -> None:
        nonlocal signalled
        signalled = True
        if started and started[0].returncode is None:
            os.killpg(started[0].pid, signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        env = {**os.environ, **tuned_environment(os.environ), PARENT: str(os.getpid())}
        started.append(subprocess.Popen(command, env=env, start_new_session=True))
        if signalled:
            pass_on()
        return started[0].wait()
    finally:
        signal.signal(signal.SIGTERM, before)


def _failure(run_dir: str, index: int) -> dict[str, object]:
    """The report of the script about its failure; empty if there is none."""
    try:
        lines = events_path(run_dir, index).read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    reports = [event for event in map(json.loads, lines) if event.get("event") == "failed"]
    return dict(reports[-1]) if reports else {}


def message(failed: Mapping[str, object], status: int) -> str:
    """The message of a container, as JSON that Kubernetes does not cut: the report, and the exit status."""
    said = {"exit_code": status, **{name: failed[name] for name in
            ("time", "error_type", "language", "peer") if name in failed}}  # fmt: skip
    for share in (1, 2, 4, 8, 16):
        limit = _TRACEBACK // share
        texts = {"message": str(failed.get("message", ""))[: limit // 2],
                 "traceback": str(failed.get("traceback") or "")[-limit:]} if failed else {}  # fmt: skip
        text = json.dumps({**said, **texts}, ensure_ascii=False)
        if len(text.encode(errors="replace")) <= _LONGEST:
            break
    return text


def _status_of_pod(status: int, failed: Mapping[str, object]) -> int:
    if failed.get("peer"):
        return PEER_STATUS
    if status == PEER_STATUS:  # the script's own: it must count
        return 1
    return status if status >= 0 else 128 - status
