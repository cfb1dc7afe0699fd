"""Pods on this machine: network namespaces that run a manifest's command, with the names of its Service."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from netns import Namespaces, own_net

_SET_UP = """
mount -t tmpfs none /mnt && mkdir /mnt/script /mnt/volume && touch /mnt/message
mount -t tmpfs -o size=64m none /dev/shm  # a pod shares no memory with others
mount --bind "$0" /mnt/message && mount --bind "$1" /mnt/script && mount --bind "$2" /mnt/volume
shift 2 && exec "$@"
"""


#: By this name, pods find the machine that they are on.
OUTSIDE = "outside"


class Pods:
    """The pods of a list of manifests, one for each index.

    Args:
        manifests: What `kubernetes_manifests` returns.
        folder: Where their script, volume and messages are.
    """

    def __init__(self, manifests: list[dict[str, Any]], folder: Path) -> None:
        by_kind = {each["kind"]: each for each in manifests}
        self._job, self._service = by_kind["Job"], by_kind["Service"]["metadata"]["name"]
        self._secrets = {
            each["metadata"]["name"]: each["data"] for each in manifests if each["kind"] == "Secret"
        }
        self._folder = folder
        self.count = self._job["spec"]["completions"]
        prefix, net = f"tfp{os.getpid() % 100000}-", own_net("198.19")
        self._bridge = f"{net}.14"
        self.namespaces = Namespaces(prefix, net, list(map(str, range(self.count))))
        pod = self._job["spec"]["template"]["spec"]
        (self.container,) = pod["containers"]
        name = pod["volumes"][0]["configMap"]["items"][0]["path"]
        for each in ("script", "volume"):
            (folder / each).mkdir(exist_ok=True)
        (folder / "script" / name).write_text(by_kind["ConfigMap"]["data"]["script"])

    def add(self) -> None:
        """Make their namespaces."""
        self.namespaces.add(self._bridge)
        for index in range(self.count):
            with self.namespaces.hosts(str(index)).open("a") as known:
                known.write(f"{self._bridge} {OUTSIDE}\n")

    def value(self, variable: dict[str, Any]) -> str:
        """The value of a variable of a container: the text itself, or what a Secret has."""
        if "value" in variable:
            return str(variable["value"]).replace("$$", "$")
        key = variable["valueFrom"]["secretKeyRef"]
        return base64.b64decode(self._secrets[key["name"]][key["key"]], validate=True).decode()

    def message(self, index: int) -> Path:
        """The message that Kubernetes would read."""
        return self._folder / f"message-{index}"

    def call(self, index: int) -> tuple[list[str], dict[str, str]]:
        """The command that starts a pod, and its environment variables. Its name resolves from now on."""
        name = f"{self._job['metadata']['name']}-{index}.{self._service}"
        line = f"{self.namespaces.address(str(index))} {name}\n"
        for other in range(self.count):
            hosts = self.namespaces.hosts(str(other))
            if line not in (known := hosts.read_text()):
                hosts.write_text(known + line)
        self.message(index).touch()
        env = {each["name"]: self.value(each) for each in self.container["env"]}
        of_pod = {"JOB_COMPLETION_INDEX": str(index), "TMPDIR": str(self._folder),
               "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # fmt: skip
        command = [word.replace("$$", "$") for word in self.container["command"]]
        folders = [str(self.message(index)), str(self._folder / "script"), str(self._folder / "volume")]
        inside = ["ip", "netns", "exec", self.namespaces.of(str(index)), "sh", "-c", _SET_UP]
        return [*inside, *folders, *command], {**env, **of_pod}

    def start(self, index: int, output: int | IO[bytes] = subprocess.PIPE) -> subprocess.Popen[Any]:
        """Start a pod. Its output is text, if it goes to a pipe."""
        command, env = self.call(index)
        return subprocess.Popen(
            command, env=os.environ | env, stdout=output, stderr=subprocess.STDOUT,
            text=output == subprocess.PIPE,
        )  # fmt: skip


@contextlib.contextmanager
def pods(manifests: list[dict[str, Any]], folder: Path) -> Iterator[Pods]:
    """Pods as long as the block runs."""
    made = Pods(manifests, folder)
    try:
        made.add()
        yield made
    finally:
        made.namespaces.remove()
