"""Pods for tests: network namespaces that run the command of a manifest, with the names of its Service."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

_NET = f"198.19.{os.getpid() % 256}"  # RFC 2544
_PREFIX = f"tfp{os.getpid() % 100000}"
_SET_UP = """
mount -t tmpfs none /mnt && mkdir /mnt/script /mnt/volume && touch /mnt/message
mount --bind "$0" /mnt/message && mount --bind "$1" /mnt/script && mount --bind "$2" /mnt/volume
shift 2 && exec "$@"
"""


def missing() -> str | None:
    """Why there can be no pods here; None if there can."""
    if os.getuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "there is no ip"
    tried = subprocess.run(["ip", "netns", "add", "tfdistr-pod"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", "tfdistr-pod"], capture_output=True)
    return f"no network namespaces: {tried.stderr.strip()}" if tried.returncode else None


class Pods:
    """The pods of a list of manifests, one for each index.

    Args:
        manifests: What `kubernetes_manifests` returns.
        folder: Where their script, volume and messages are.
    """

    def __init__(self, manifests: list[dict[str, Any]], folder: Path) -> None:
        by_kind = {each["kind"]: each for each in manifests}
        self._job, self._service = by_kind["Job"], by_kind["Service"]["metadata"]["name"]
        self._folder = folder
        self.count = self._job["spec"]["completions"]
        pod = self._job["spec"]["template"]["spec"]
        (self.container,) = pod["containers"]
        name = pod["volumes"][0]["configMap"]["items"][0]["path"]
        for each in ("script", "volume"):
            (folder / each).mkdir(exist_ok=True)
        (folder / "script" / name).write_text(by_kind["ConfigMap"]["data"]["script"])

    def message(self, index: int) -> Path:
        """The message that Kubernetes would read."""
        return self._folder / f"message-{index}"

    def add(self) -> None:
        """Make the namespaces."""
        _run("ip", "link", "add", _PREFIX, "type", "bridge")
        _run("ip", "link", "set", _PREFIX, "up")
        for index in range(self.count):
            space = f"{_PREFIX}-{index}"
            known = Path("/etc/netns", space)
            known.mkdir(parents=True)
            (known / "hosts").write_text("127.0.0.1 localhost\n")
            _run("ip", "netns", "add", space)
            _run("ip", "link", "add", f"{space}v", "type", "veth", "peer", "name", "eth0", "netns", space)
            _run("ip", "link", "set", f"{space}v", "master", _PREFIX, "up")
            for words in (["addr", "add", f"{_NET}.{index + 1}/28", "dev", "eth0"],
                          ["link", "set", "eth0", "up"], ["link", "set", "lo", "up"]):  # fmt: skip
                _run("ip", "-n", space, *words)

    def start(self, index: int, output: int | IO[bytes] = subprocess.PIPE) -> subprocess.Popen[Any]:
        """Start a pod: its name resolves from now on. Its output is text, if it goes to a pipe."""
        name = f"{self._job['metadata']['name']}-{index}.{self._service}"
        for other in range(self.count):
            hosts = Path("/etc/netns", f"{_PREFIX}-{other}", "hosts")
            line = f"{_NET}.{index + 1} {name}\n"
            if line not in (known := hosts.read_text()):
                hosts.write_text(known + line)
        self.message(index).touch()
        env = {each["name"]: each["value"].replace("$$", "$") for each in self.container["env"]}
        own = {"JOB_COMPLETION_INDEX": str(index), "TMPDIR": str(self._folder),
               "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fmt: skip
        command = [word.replace("$$", "$") for word in self.container["command"]]
        folders = [str(self.message(index)), str(self._folder / "script"), str(self._folder / "volume")]
        return subprocess.Popen(
            ["ip", "netns", "exec", f"{_PREFIX}-{index}", "sh", "-c", _SET_UP, *folders, *command],
            env={**os.environ, **env, **own}, stdout=output, stderr=subprocess.STDOUT,
            text=output == subprocess.PIPE,
        )  # fmt: skip

    def remove(self) -> None:
        """Remove the namespaces, and what runs there."""
        for index in range(self.count):
            space = f"{_PREFIX}-{index}"
            listed = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True)
            for pid in listed.stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            subprocess.run(["ip", "link", "del", f"{space}v"], capture_output=True)
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
            shutil.rmtree(f"/etc/netns/{space}", ignore_errors=True)
        subprocess.run(["ip", "link", "del", _PREFIX], capture_output=True)
        with contextlib.suppress(OSError):
            Path("/etc/netns").rmdir()


@contextlib.contextmanager
def pods(manifests: list[dict[str, Any]], folder: Path) -> Iterator[Pods]:
    """Pods as long as the block runs."""
    made = Pods(manifests, folder)
    try:
        made.add()
        yield made
    finally:
        made.remove()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=60)
