"""Hosts for tests: network namespaces of this machine, each with an ssh server of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

#: Addresses for tests of networks (RFC 2544). Tests in several processes have hosts at the same time.
NET = f"198.18.{os.getpid() % 256}"
#: So few addresses that what a killed test leaves does not take the way to other machines.
_MASK = 28
_BRIDGE = f"{NET}.14"
_FORK_SERVER = "tfdistr.launch.warm.server"


def missing() -> str | None:
    """Why there can be no hosts here; None if there can."""
    if os.name != "posix" or os.getuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "sshd", "ssh", "ssh-keygen"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            return f"there is no {program}"
    tried = subprocess.run(["ip", "netns", "add", "tfdistr-try"], capture_output=True, text=True)
    if tried.returncode != 0:
        return f"no network namespaces: {tried.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", "tfdistr-try"], check=True)
    return None


class Hosts:
    """Hosts "a", "b", ..., joined with this machine by a bridge, to which ``ssh`` leads.

    Args:
        names: Their names, of one letter each.
        folder: Where their keys and settings are.
        hidden: Folders of this machine that a host does not see.
    """

    def __init__(self, names: str, folder: Path, hidden: Mapping[str, Path] | None = None) -> None:
        self._prefix = f"tf{os.getpid() % 100000}"
        self._names = names
        self._folder = folder
        self._hidden = dict(hidden or {})
        self._servers: list[subprocess.Popen[bytes]] = []
        self.ssh = f"ssh -F {folder / 'ssh_config'}"

    def address(self, name: str) -> str:
        """The address of a host."""
        return f"{NET}.{self._names.index(name) + 1}"

    def namespace(self, name: str) -> str:
        """Its network namespace, which is also the prefix of its interface here."""
        return f"{self._prefix}{name}"

    def start(self) -> None:
        """Make the hosts, and wait until they let one in."""
        for key in ("host", "user"):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._folder / key))
        shutil.copy(self._folder / "user.pub", self._folder / "authorized_keys")
        Path("/run/sshd").mkdir(exist_ok=True)
        bridge = self._prefix
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{_BRIDGE}/{_MASK}", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        config = []
        for name in self._names:
            self._add(name, bridge)
            config += [f"Host {name}", f"  HostName {self.address(name)}"]
        config += ["Host *", "  StrictHostKeyChecking no", f"  UserKnownHostsFile {self._folder}/known_hosts",
                   f"  IdentityFile {self._folder}/user", "  IdentitiesOnly yes", "  BatchMode yes",
                   "  LogLevel ERROR"]  # fmt: skip
        (self._folder / "ssh_config").write_text("\n".join(config) + "\n")
        end = time.monotonic() + 30
        for name in self._names:
            while subprocess.run([*self.ssh.split(), name, "true"], capture_output=True).returncode != 0:
                if time.monotonic() > end:
                    raise TimeoutError(f"no ssh to {name}")
                time.sleep(0.1)

    def _add(self, name: str, bridge: str) -> None:
        namespace, outer = self.namespace(name), f"{self.namespace(name)}v"
        known = Path("/etc/netns", namespace)
        known.mkdir(parents=True)
        # By this name mpiexec tells the hosts where to find it.
        (known / "hosts").write_text(f"127.0.0.1 localhost\n{_BRIDGE} {socket.gethostname()}\n")
        _run("ip", "netns", "add", namespace)
        _run("ip", "link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        _run("ip", "link", "set", outer, "master", bridge, "up")
        for words in (["addr", "add", f"{self.address(name)}/{_MASK}", "dev", "eth0"],
                      ["link", "set", "eth0", "up"], ["link", "set", "lo", "up"]):  # fmt: skip
            _run("ip", "-n", namespace, *words)
        settings = self._folder / f"sshd_config_{name}"
        settings.write_text(
            f"ListenAddress {self.address(name)}\nHostKey {self._folder}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self._folder}/authorized_keys\nStrictModes no\n"
            "PasswordAuthentication no\nPermitRootLogin yes\n"
        )
        server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "sshd"
        log = (self._folder / f"sshd_{name}.log").open("wb")
        serve = shlex.join([server, "-D", "-e", "-f", str(settings)])
        hide = f"mount -t tmpfs none {shlex.quote(str(self._hidden.get(name)))}"  # a mount of its own
        line = f"{hide if name in self._hidden else 'true'} && exec {serve}"
        command = ["ip", "netns", "exec", namespace, "sh", "-c", line]
        self._servers.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def sent(self, name: str) -> int:
        """Bytes that a host has sent."""
        statistics = "/sys/class/net/eth0/statistics/tx_bytes"
        return int(_run("ip", "netns", "exec", self.namespace(name), "cat", statistics))

    def cut(self, name: str) -> None:
        """Take a host from the network."""
        _run("ip", "link", "set", f"{self.namespace(name)}v", "down")

    def mend(self, name: str) -> None:
        """Bring it back."""
        _run("ip", "link", "set", f"{self.namespace(name)}v", "up")

    def isolate(self, name: str, isolated: bool = True) -> None:
        """Keep a host from other isolated hosts; this machine and the host still reach each other."""
        word = "on" if isolated else "off"
        _run("ip", "link", "set", f"{self.namespace(name)}v", "type", "bridge_slave", "isolated", word)

    def end_all(self, name: str) -> None:
        """End what runs on a host, but for its ssh server, as if it were switched off."""
        there = _run("ip", "netns", "pids", self.namespace(name)).split()
        pids = [int(line.split()[0]) for line in self.processes() if line.split()[0] in there]
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none is left to tell of another
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def processes(self) -> list[str]:
        """What runs on the hosts, but for their ssh servers, and fork servers, which serve other jobs."""
        return [line for line in self._processes() if _FORK_SERVER not in line]

    def fork_servers(self) -> list[str]:
        """The fork servers on the hosts."""
        return [line for line in self._processes() if _FORK_SERVER in line]

    def _processes(self) -> list[str]:
        listed = [_run("ip", "netns", "pids", self.namespace(name)) for name in self._names]
        lines = []
        for pid in " ".join(listed).split():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if command and "sshd" not in command.split()[0]:
                    lines.append(f"{pid} {command}")
        return lines

    def stop(self) -> None:
        """Take them away, with all that runs there."""
        for server in self._servers:
            server.kill()
            server.wait()
        folders = re.findall(r"/tmp/tfdistr-warm-\w+", " ".join(self.fork_servers()))
        for name in self._names:
            namespace = self.namespace(name)
            listed = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True)
            for pid in listed.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            subprocess.run(["ip", "link", "del", f"{namespace}v"], capture_output=True)
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)
            shutil.rmtree(f"/etc/netns/{namespace}", ignore_errors=True)
        for folder in folders:  # a server that is killed leaves it
            shutil.rmtree(folder, ignore_errors=True)
        subprocess.run(["ip", "link", "del", self._prefix], capture_output=True)
        with contextlib.suppress(OSError):
            Path("/etc/netns").rmdir()


@contextlib.contextmanager
def hosts(names: str, folder: Path, hidden: Mapping[str, Path] | None = None) -> Iterator[Hosts]:
    """Hosts as long as the block runs."""
    made = Hosts(names, folder, hidden)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _run(*command: str) -> str:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if ended.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {ended.stderr}")
    return ended.stdout
