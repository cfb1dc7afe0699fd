"""The identity of the running system, which the processes of a host share."""

from __future__ import annotations

import socket
from pathlib import Path


def running_system() -> str:
    """Return the id of the running system. It is the name of the host where systems have no id."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not on Linux
        return socket.gethostname()
