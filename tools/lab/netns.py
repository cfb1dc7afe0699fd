"""Network namespaces of this machine, joined by a bridge; hosts and pods of tests are in them."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

#: So few addresses that what a killed test leaves does not take the way to other machines.
MASK = 28

_held: list[socket.socket] = []


@functools.cache
def own_net(first: str) -> str:
    """The first three numbers of addresses that no other process of tests has: ``first`` and a number.

    No bridge of this machine has such an address: killed tests may have left one.
    198.18 and 198.19 are for tests of networks (RFC 2544). A process keeps a socket of that name, which has
    no file.
    """
    routes = Path("/proc/net/fib_trie")
    here = routes.read_text() if routes.exists() else ""
    for number in range(256):
        net = f"{first}.{(os.getpid() + number) % 256}"
        if f" {net}." in here:
            continue
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0tfdistr-tests-{net}")
        except OSError as error:
            held.close()
            if error.errno == errno.EADDRINUSE:
                continue
        else:
            _held.append(held)
        return net
    raise RuntimeError(f"all networks from {first}.0 to {first}.255 are taken")


def run(*command: str) -> str:
    """Run a command, and return its output."""
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {ended.stderr}")
    return ended.stdout


def missing() -> str | None:
    """Why there can be no namespaces here; None if there can."""
    if os.name != "posix" or os.getuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
        return "there is no ip"
    name = f"tft{os.getpid()}"  # other tests may try at the same time
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return f"no network namespaces: {tried.stderr.strip()}" if tried.returncode else None


def kill(pids: Iterable[int]) -> None:
    """Kill processes as if their machine were switched off: none is left to tell of another."""
    pids = list(pids)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class Namespaces:
    """Namespaces with one interface each.

    Args:
        prefix: The name of the bridge; the names of the namespaces begin with it.
        net: The first three numbers of their addresses.
        names: What distinguishes them; the first has the address 1.
    """

    def __init__(self, prefix: str, net: str, names: Sequence[str]) -> None:
        self._bridge, self._net, self._names = prefix, net, list(names)

    def of(self, name: str) -> str:
        """The name of a namespace."""
        return f"{self._bridge}{name}"

    def outside(self, name: str) -> str:
        """The other end of its interface, on the bridge."""
        return f"{self.of(name)}v"

    def address(self, name: str) -> str:
        """The address in a namespace."""
        return f"{self._net}.{self._names.index(name) + 1}"

    def hosts(self, name: str) -> Path:
        """What is /etc/hosts in a namespace."""
        return Path("/etc/netns", self.of(name), "hosts")

    def add(self, bridge_address: str | None = None) -> None:
        """Make the bridge, with an address of this machine if one is given, and the namespaces."""
        run("ip", "link", "add", self._bridge, "type", "bridge")
        if bridge_address is not None:
            run("ip", "addr", "add", f"{bridge_address}/{MASK}", "dev", self._bridge)
        run("ip", "link", "set", self._bridge, "up")
        for name in self._names:
            self.hosts(name).parent.mkdir(parents=True)
            self.hosts(name).write_text("127.0.0.1 localhost\n")
            inner = ["type", "veth", "peer", "name", "eth0", "netns", self.of(name)]
            run("ip", "netns", "add", self.of(name))
            run("ip", "link", "add", self.outside(name), *inner)
            run("ip", "link", "set", self.outside(name), "master", self._bridge, "up")
            for words in (["addr", "add", f"{self.address(name)}/{MASK}", "dev", "eth0"],
                          ["link", "set", "eth0", "up"], ["link", "set", "lo", "up"]):  # fmt: skip
                run("ip", "-n", self.of(name), *words)

    def isolate(self, name: str, isolated: bool = True) -> None:
        """Keep a namespace from other isolated ones."""
        word = "on" if isolated else "off"
        run("ip", "link", "set", self.outside(name), "type", "bridge_slave", "isolated", word)

    def limit(self, mbit: float) -> None:
        """Limit the rate at which each namespace sends."""
        for name in self._names:
            # A segment of TCP has up to 64 kB here. None is dropped, so that TCP does not slow down.
            run("tc", "-n", self.of(name), "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate",
                f"{mbit}mbit", "burst", f"{max(128, int(mbit / 8))}kb", "latency", "500ms")  # fmt: skip

    def pids(self, name: str) -> list[int]:
        """The processes in a namespace."""
        listed = subprocess.run(["ip", "netns", "pids", self.of(name)], capture_output=True, text=True)
        return list(map(int, listed.stdout.split()))

    def remove(self) -> None:
        """Remove them, and what runs there."""
        for name in self._names:
            kill(self.pids(name))
            subprocess.run(["ip", "link", "del", self.outside(name)], capture_output=True)
            subprocess.run(["ip", "netns", "del", self.of(name)], capture_output=True)
            shutil.rmtree(self.hosts(name).parent, ignore_errors=True)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True)
        with contextlib.suppress(OSError):
            Path("/etc/netns").rmdir()
