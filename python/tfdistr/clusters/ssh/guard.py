"""The guard of a worker on a host that its launcher reaches by ssh. The worker exits with the connection.

    python guard.py

The first line of standard input is a JSON object with the program to run. Then come signals for the worker,
as JSON, and empty lines as heartbeats. The worker is killed at the end of the input, and if there is no input
for too long: nothing else reports that a network is cut. Lines of ``MARK`` and JSON on standard
output tell the launcher the state of the worker; its output goes to standard error.

The script is run by its path and uses the standard library only, as rank_guard.py does.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import select
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

_CORE = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, os.pardir)
_GUARD = runpy.run_path(os.path.join(_CORE, "clusters", "rank_guard.py"))
_Lines = runpy.run_path(os.path.join(_CORE, "utils", "log_tail.py"))["LineReader"]
_GRACE = 2  # seconds that the worker has to exit by itself when this process is asked to stop
_CHUNK = 1 << 16


def lines(silence: list[float]) -> Iterator[str | None]:
    """Yield the lines of standard input; None if there was no input for ``silence[0]`` seconds."""
    reader = _Lines()
    while True:
        if not select.select([0], [], [], silence[0])[0]:
            yield None
            continue
        received = os.read(0, _CHUNK)
        if not received:
            return
        yield from reader.take(received)


def obey(group: int, said: Iterator[str | None]) -> None:
    """Send the worker the signals that the launcher asks for, and kill it when the launcher is lost."""
    reason = "the connection to its launcher was closed"
    for line in said:
        if line is None:
            reason = "its launcher sends no heartbeat"
            break
        if line.strip():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, json.loads(line)["signal"])
    with contextlib.suppress(OSError):  # nobody reads it any more
        os.write(2, f"tfdistr: this worker is killed, because {reason}.\n".encode())
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def kept_to_loopback(env: dict[str, str], core: str) -> tuple[dict[str, str], str | None]:
    """Make TensorFlow's server listen on the loopback interface only, if possible, and return its variables.

    This process must live as long as the worker. If it is not possible, the result has the reason.
    """
    sys.path.insert(0, os.path.dirname(core))
    from tfdistr.errors import ClusterStartError, TfdistrError
    from tfdistr.network.loopback import LOOPBACK, keep_to_loopback

    try:
        kept = keep_to_loopback({LOOPBACK: "preload", **env})
        if kept.way != "namespace":
            return kept.environment(env), None
        # Each worker would be alone in its own namespace.
        reason = f'{LOOPBACK}=namespace works with local_cluster() only; here, "preload" does'
    except TfdistrError as error:
        reason = str(error.received if isinstance(error, ClusterStartError) else error.message)
    with contextlib.suppress(OSError):  # nobody reads it any more
        os.write(2, f"tfdistr: this worker listens on all interfaces of its host: {reason}.\n".encode())
    return env, reason


def run(spec: dict[str, Any], said: Iterator[str | None]) -> int:
    """Run the worker that ``spec`` describes, and return its exit status, as a shell does.

    Args:
        spec: "command", "env", "folder" (the working directory, if the host has it), "host", "index",
            "warm" (how a fork server starts the worker, or None), and "loopback" (the folder with tfdistr if
            the worker should listen on the loopback interface only, or None).
        said: The further lines of the launcher.
    """
    say = functools.partial(_GUARD["_say"], rank=spec["index"], host=spec["host"])
    with contextlib.suppress(OSError):
        os.chdir(spec["folder"])
    env = {**os.environ, **spec["env"], "TFDISTR_PARENT_PID": str(os.getpid())}
    if spec["loopback"]:
        env, open_because = kept_to_loopback(env, spec["loopback"])
        if open_because:
            say(open_because=open_because)
    output = open(2, "wb", buffering=0, closefd=False)  # noqa: SIM115 - as long as this process
    try:
        forked = _GUARD["fork"](spec["warm"], env, output) if spec["warm"] else None
        child = forked or _GUARD["start"](spec["command"], env, output)
    except OSError as error:
        say(failed=str(error))
        return 1
    say(pid=child.pid)
    for task, arguments in ((_GUARD["_live"], (say,)), (obey, (child.pid, said))):
        threading.Thread(target=task, args=arguments, daemon=True).start()
    end_watcher = _GUARD["end_group_with_this"](child.pid, env)
    code, _ = _GUARD["watch"](
        child.pid, forked.changes() if forked else _GUARD["changes"](child), first=signal.SIGTERM,
        then=signal.SIGKILL, grace=_GRACE, say=say,
    )  # fmt: skip
    say(exit_code=code, server_lost=bool(forked and forked.server_lost))
    end_watcher()
    return int(code if code >= 0 else 128 - code)


def main() -> int:
    """Run the worker that the first line of the input describes."""
    silence = [60.0]
    said = lines(silence)
    first = next(said, None)
    if first is None:  # the launcher has exited
        return 1
    spec = json.loads(first)
    silence[0] = spec["silence"]
    return run(spec, said)


if __name__ == "__main__":
    os._exit(main())
