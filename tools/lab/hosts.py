"""Hosts for tests: network namespaces of this machine, each with an ssh server of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import netns

NET = netns.own_net("198.18")  # tests in several processes have hosts at the same time
_FORK_SERVER = "tfdistr.fork_server.server"


def missing() -> str | None:
    """Why there can be no hosts here; None if there can."""
    for program in ("sshd", "ssh", "ssh-keygen"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            return f"there is no {program}"
    return netns.missing()


class Hosts(netns.Namespaces):
    """Hosts "a", "b", ..., joined with this machine by a bridge, to which ``ssh`` leads.

    Args:
        names: Their names, of one letter each.
        folder: Where their keys and settings are.
        hidden: Folders of this machine that a host does not see.
        own: Folders that each host has for itself, empty at first.
        cores: The cores of a host, as taskset takes them; by default all.

    Attributes:
        here: The address of this machine for the hosts.
    """

    here = f"{NET}.14"

    def __init__(
        self, names: str, folder: Path, hidden: Mapping[str, Path] | None = None, own: Sequence[Path] = (),
        cores: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(f"tf{os.getpid() % 100000}", NET, names)
        self._folder = folder
        self._hidden, self._cores = dict(hidden or {}), dict(cores or {})
        self._own = list(own)
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self.ssh = f"ssh -F {folder / 'ssh_config'}"

    def inside(self, name: str) -> list[str]:
        """The words before a command that runs on a host."""
        pid = str(self._servers[name].pid)
        return [*self._on_cores(name), "nsenter", "--target", pid, "--net", "--mount", "--uts"]

    def _on_cores(self, name: str) -> list[str]:
        return ["taskset", "--cpu-list", self._cores[name]] if name in self._cores else []

    def start(self) -> None:
        """Make the hosts, and wait until they let one in."""
        for key in ("host", "user"):
            netns.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self._folder / key))
        shutil.copy(self._folder / "user.pub", self._folder / "authorized_keys")
        Path("/run/sshd").mkdir(exist_ok=True)
        self.add(self.here)
        config = []
        for name in self._names:
            self._serve(name)
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

    def _serve(self, name: str) -> None:
        with self.hosts(name).open("a") as known:
            # By this name mpiexec tells the hosts where to find it.
            known.write(f"{self.here} {socket.gethostname()}\n")
        settings = self._folder / f"sshd_config_{name}"
        settings.write_text(
            f"ListenAddress {self.address(name)}\nHostKey {self._folder}/host\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {self._folder}/authorized_keys\nStrictModes no\n"
            "PasswordAuthentication no\nPermitRootLogin yes\n"
        )
        server = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin") or "sshd"
        log = (self._folder / f"sshd_{name}.log").open("wb")
        serve = shlex.join([server, "-D", "-e", "-f", str(settings)])
        empty = [*self._own, *([self._hidden[name]] if name in self._hidden else [])]
        mounts = "".join(f"mount -t tmpfs none {shlex.quote(str(folder))} && " for folder in empty)
        call = f"echo {name} > /proc/sys/kernel/hostname"  # by this name Open MPI tells hosts apart
        line = f"{call} && {mounts}exec {serve}"
        command = [*self._on_cores(name), "ip", "netns", "exec", self.of(name), "unshare", "--uts"]
        self._servers[name] = subprocess.Popen(
            [*command, "sh", "-c", line], stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )

    def cut(self, name: str) -> None:
        """Take a host from the network."""
        netns.run("ip", "link", "set", self.outside(name), "down")

    def mend(self, name: str) -> None:
        """Bring it back."""
        netns.run("ip", "link", "set", self.outside(name), "up")

    def end_all(self, name: str) -> None:
        """End what runs on a host, but for its ssh server, as if it were switched off."""
        there = self.pids(name)
        netns.kill(pid for line in self.processes() if (pid := int(line.split()[0])) in there)

    def processes(self) -> list[str]:
        """What runs on the hosts, but for their ssh servers, and fork servers, which serve other jobs."""
        return [line for line in self._processes() if _FORK_SERVER not in line]

    def fork_servers(self) -> list[str]:
        """The fork servers on the hosts."""
        return [line for line in self._processes() if _FORK_SERVER in line]

    def _processes(self) -> list[str]:
        lines = []
        for pid in [pid for name in self._names for pid in self.pids(name)]:
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if command and "sshd" not in command.split()[0]:
                    lines.append(f"{pid} {command}")
        return lines

    def stop(self) -> None:
        """Take them away, with all that runs there."""
        for server in self._servers.values():
            server.kill()
            server.wait()
        folders = re.findall(r"/tmp/tfdistr-warm-\w+", " ".join(self.fork_servers()))
        self.remove()
        for folder in folders:  # a server that is killed leaves it
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def hosts(
    names: str, folder: Path, hidden: Mapping[str, Path] | None = None, own: Sequence[Path] = (),
    cores: Mapping[str, str] | None = None,
) -> Iterator[Hosts]:  # fmt: skip
    """Hosts as long as the block runs."""
    made = Hosts(names, folder, hidden, own, cores)
    try:
        made.start()
        yield made
    finally:
        made.stop()
