"""Free ports on this machine."""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

from tfdistr.errors import ClusterStartError

_RANGE = range(10_000, 65_536)  # above the ports of most services
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """Choose ports on which no process listens, on any interface of this machine.

    Another process may still take a port before the worker does. That is unlikely: the ports lie outside the
    range that the kernel uses for outgoing connections, and the search starts at a random port.
    """
    candidates = _candidates()
    start = random.SystemRandom().randrange(len(candidates))  # not the sequence that the user's seed fixes
    ports: list[int] = []
    with contextlib.ExitStack() as held:  # until all are chosen, so that none is chosen twice
        for port in candidates[start:] + candidates[:start]:
            if len(ports) == count:
                break
            try:
                held.enter_context(_bind(port))
            except OSError:
                continue
            ports.append(port)
    if len(ports) < count:
        raise ClusterStartError(
            f"Cannot find {count} free ports for {count} workers on this machine.",
            received=f"{len(ports)} free ports of {len(candidates)}",
            fix="Start fewer workers, or stop programs that listen on many ports.",
        )
    return ports


def is_free(port: int) -> bool:
    """Return whether no process listens on a port, on any interface of this machine."""
    try:
        _bind(port).close()
    except OSError:
        return False
    return True


def _candidates() -> list[int]:
    try:
        low, high = (int(number) for number in _EPHEMERAL.read_text().split())
    except (OSError, ValueError):
        low, high = 49_152, 65_535  # the range of IANA, which most systems use
    return [port for port in _RANGE if not low <= port <= high] or list(_RANGE)


def _bind(port: int) -> socket.socket:
    """Take a port on every interface, as TensorFlow's server will."""
    both = socket.has_dualstack_ipv6()
    taken = socket.socket(socket.AF_INET6 if both else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if both:
            taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        taken.bind(("::" if both else "", port))
    except BaseException:
        taken.close()
        raise
    return taken
