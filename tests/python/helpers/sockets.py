"""What processes of this machine listen on, and a host from which to try to reach it."""

import contextlib
import ipaddress
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from netns import own_net

_LISTEN = "0A"
#: Ranges for tests of networks and for documentation (RFC 2544, RFC 3849). A network of four addresses: what
#: a killed test leaves must not take the way to other machines, which may have such addresses all the same.
_NET = own_net("198.19")
_NET6 = f"2001:db8:{_NET.split('.')[2]}"
_HERE, _THERE = (f"{_NET}.1/30", f"{_NET6}::1/126"), (f"{_NET}.2/30", f"{_NET6}::2/126")
_CONNECT = """
import socket, sys
for address in sys.argv[1:]:
    host, port = address.rsplit(" ", 1)
    try:
        socket.create_connection((host, int(port)), 2).close()
        print(address)
    except ConnectionRefusedError:
        pass
"""


def descendants(pid: int) -> set[int]:
    """A process and all that it has started."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(process.name))
    found, new = set(), [pid]
    while new:
        found.add(new[-1])
        new += children.get(new.pop(), [])
    return found


def listening(pids: Iterable[int]) -> dict[str, int]:
    """The addresses that processes listen on, as "127.0.0.1 2222", with the number of such sockets."""
    own = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for file in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    own.add(os.readlink(file))
    found: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == _LISTEN and f"socket:[{fields[9]}]" in own:
                address, port = fields[1].split(":")
                key = f"{_address(address)} {int(port, 16)}"
                found[key] = found.get(key, 0) + 1
    return found


def is_loopback(address: str) -> bool:
    """Whether an address of `listening` is reached from this machine only."""
    host = ipaddress.ip_address(address.split()[0])
    return (getattr(host, "ipv4_mapped", None) or host).is_loopback


def _address(text: str) -> str:
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    return str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words)))


class Neighbour:
    """Another host, from which this one can be reached. `neighbour` makes it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def reaches(self, ports: Iterable[int]) -> list[int]:
        """The ports of this machine to which it can connect, at any of its addresses there."""
        addresses = [f"{host.partition('/')[0]} {port}" for port in ports for host in _HERE]
        command = ["ip", "netns", "exec", self.name, sys.executable, "-I", "-S", "-c", _CONNECT, *addresses]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr
        return sorted({int(line.rpartition(" ")[2]) for line in ended.stdout.splitlines()})


def no_neighbour() -> str | None:
    """Why there can be no other host here; None if there can."""
    if os.getuid() != 0:
        return "network namespaces with a way to this one need root"
    if shutil.which("ip") is None:
        return "there is no program ip"
    name = f"tfs{os.getpid()}try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None if made.returncode == 0 else f"no network namespaces: {made.stderr.strip()}"


@contextlib.contextmanager
def neighbour() -> Iterator[Neighbour]:
    """Another host as long as the block runs: a network namespace, and a cable to it."""
    name, device = f"tfs{os.getpid()}", f"tfs{os.getpid() % 100000}v"
    try:
        for words in (
            f"netns add {name}",
            f"link add {device} type veth peer name eth0 netns {name}",
            *(f"addr add {host} dev {device} nodad" for host in _HERE),
            *(f"-n {name} addr add {host} dev eth0 nodad" for host in _THERE),
            f"link set {device} up",
            f"-n {name} link set eth0 up",
        ):
            subprocess.run(["ip", *words.split()], check=True, capture_output=True, text=True, timeout=60)
        yield Neighbour(name)
    finally:
        subprocess.run(["ip", "link", "del", device], capture_output=True)
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
