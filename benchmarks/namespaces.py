"""A network of namespaces on this machine, one for each worker, joined by slow links; needs root.

Each namespace has one interface, whose other end is this program: a switch that hands on every frame after
a delay. The kernel limits the rate at which the interface sends (tbf). So links of any rate and latency can
be had where the kernel has no netem.
"""

from __future__ import annotations

import contextlib
import fcntl
import multiprocessing
import os
import select
import struct
import subprocess
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

_TUNSETIFF, _TAP_WITHOUT_HEADER = 0x400454CA, 0x1002
_TUN = Path("/dev/net/tun")
#: Bytes of a packet: large, so that the switch has few to hand on.
MTU = 9000


def host(worker: int) -> str:
    """Address of a worker, which is also the name of its namespace."""
    return f"10.77.0.{worker + 1}"


def why_not() -> str | None:
    """Why such a network is not possible here, if it is not."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not _TUN.exists():
        return f"the kernel has no {_TUN}"
    return None


@contextlib.contextmanager
def network(workers: int, mbit: float, delay: float) -> Iterator[None]:
    """Links that send ``mbit`` Mbit/s, each way, with a latency of ``delay`` seconds."""
    with contextlib.ExitStack() as stack:
        taps = []
        for worker in range(workers):
            tap = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK)
            stack.callback(os.close, tap)
            fcntl.ioctl(tap, _TUNSETIFF, struct.pack("16sH", b"tfdistr%d" % worker, _TAP_WITHOUT_HEADER))
            taps.append(tap)
            _namespace(stack, worker, mbit)
        switch = multiprocessing.get_context("fork").Process(target=_forward, args=(taps, delay), daemon=True)
        switch.start()
        stack.callback(switch.join)
        stack.callback(switch.kill)
        yield


def _namespace(stack: contextlib.ExitStack, worker: int, mbit: float) -> None:
    name, device = host(worker), f"tfdistr{worker}"
    _ip("netns", "add", name)
    stack.callback(_ip, "netns", "del", name)
    _ip("link", "set", device, "netns", name, "address", f"02:00:00:00:00:{worker:02x}", "mtu", str(MTU))
    _ip("-n", name, "addr", "add", f"{name}/24", "dev", device)
    _ip("-n", name, "link", "set", device, "up")
    _ip("-n", name, "link", "set", "lo", "up")
    # Half a second of packets may wait: none is dropped, so that TCP does not slow down.
    subprocess.run(
        ["tc", "-n", name, "qdisc", "add", "dev", device, "root", "tbf",
         "rate", f"{mbit}mbit", "burst", "10kb", "latency", "500ms"], check=True,
    )  # fmt: skip


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def _forward(taps: list[int], delay: float) -> None:
    """The switch: hand on frames, for ever. The last byte of an address is the number of the worker."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # the workers keep the cores busy
    waiting: deque[tuple[float, int, bytes]] = deque()
    while True:
        left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        ready, _, _ = select.select(taps, [], [], left)
        for tap in ready:
            with contextlib.suppress(BlockingIOError):
                while True:
                    frame = os.read(tap, 65536)
                    to = [t for t in taps if t != tap] if frame[0] & 1 else [taps[frame[5]]]
                    due = time.monotonic() + delay
                    waiting.extend((due, each, frame) for each in to)
        while waiting and waiting[0][0] <= time.monotonic():
            _, tap, frame = waiting.popleft()
            with contextlib.suppress(OSError):  # the interface is not up yet
                os.write(tap, frame)
