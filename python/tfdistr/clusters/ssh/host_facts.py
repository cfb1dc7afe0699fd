"""The facts about a host for workers. This machine sends the script to Python there, over ssh; see survey.py.

The script prints one line: ``MARK`` and a JSON object. It uses the standard library, and how tfdistr
finds free ports and GPUs, if the host has it. It imports no package of the job, because
TensorFlow would take seconds.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
from typing import Any

MARK = "tfdistr-facts "
"""The beginning of the line with the facts: a shell may print other lines."""
_R_TIMEOUT = 60  # seconds


def facts(request: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about this host.

    Args:
        request: "path": folders with Python packages. "core": the folder of tfdistr on the machine that asks.
            "marker": a file that each host must see, or None. "names": names of hosts. "ports": the number
            of free ports to find. "wanted": ports that should be free. "visible": CUDA_VISIBLE_DEVICES of the
            workers, or None. "r": "command" and "env" of an R program that prints versions, or None.
    """
    began = time.time()
    sys.path[:0] = [*request["path"], os.path.dirname(request["core"])]
    return {
        "time": began,
        "versions": versions_here(request["r"]),
        "core": _core()[1],
        "sees_marker": os.path.exists(request["marker"]) if request["marker"] else None,
        "unresolved": [name for name in request["names"] if not _resolves(name)],
        "ports": _ports(request["ports"]),
        "busy": _busy(request["wanted"]),
        "gpus": _gpus(request["visible"]),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory": _memory(),
    }


def versions_here(r: dict[str, Any] | None) -> dict[str, str | None]:
    """Return the versions that must be the same on all hosts; None for what is not installed."""
    return {
        "version of Python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "version of tfdistr": _core()[0],
        "version of TensorFlow": _version("tensorflow") or _version("tensorflow-cpu"),
        "version of Keras": _version("keras"),
        **_versions_of_r(r),
    }


def _core() -> tuple[str | None, str | None]:
    """Return the version and the folder of tfdistr; None if it is not installed."""
    with contextlib.suppress(OSError, ValueError, ImportError):
        found = importlib.util.find_spec("tfdistr")
        if found is not None and found.origin:
            folder = os.path.dirname(found.origin)
            with open(os.path.join(folder, "_version.py"), encoding="utf-8") as file:
                match = re.search(r'^__version__ = "(.+)"', file.read(), re.MULTILINE)
            return (match[1] if match else None), folder
    return None, None


def _version(distribution: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return None


def _versions_of_r(request: dict[str, Any] | None) -> dict[str, str | None]:
    if request is None:
        return {}
    lines: list[str] = []
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        lines = subprocess.run(
            request["command"], env={**os.environ, **request["env"]}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, errors="replace", timeout=_R_TIMEOUT,
        ).stdout.splitlines()  # fmt: skip
    names = ("version of R", "version of reticulate", "version of the R package tfdistr")
    return dict(zip(names, [*(line or None for line in lines), None, None, None], strict=False))


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except (OSError, UnicodeError):
        return False


def _ports(count: int) -> list[int]:
    try:
        from tfdistr.network.ports import free_ports

        return free_ports(count)
    except Exception:  # no tfdistr, another version, or too few ports: the version check names the reason
        return []


def _busy(ports: list[int]) -> list[int]:
    """Return the ports that are not free."""
    if not ports:
        return []
    from tfdistr.network.ports import is_free

    return [port for port in ports if not is_free(port)]


def _gpus(visible: str | None) -> list[str]:
    """Return the visible GPUs, as in CUDA_VISIBLE_DEVICES."""
    try:
        from tfdistr.utils.gpus import VISIBLE, visible_gpus

        return list(visible_gpus({} if visible is None else {VISIBLE: visible}))
    except Exception:  # no tfdistr, or another version: the version check names the reason
        return []


def _memory() -> int | None:
    """Return the bytes of available memory; None if the system does not report them."""
    with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def report_facts(request: str) -> None:
    """Print the facts that a request asks for."""
    print(f"{MARK}{json.dumps(facts(json.loads(request)))}", flush=True)
