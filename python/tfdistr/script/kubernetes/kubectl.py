"""The program ``kubectl``, through which the objects of a Job are made, watched and deleted."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from tfdistr.errors import ArgumentError, ClusterStartError
from tfdistr.script.kubernetes.manifests import as_text
from tfdistr.script.kubernetes.options import Pods

_TIMEOUT = 60.0


class Kubectl:
    """The program ``kubectl``."""

    def __init__(self, namespace: str | None) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise ClusterStartError(
                "`tfdistr kubernetes run` needs kubectl.",
                received="no kubectl on PATH",
                fix="Install kubectl, or write the manifests: tfdistr kubernetes write -n 4 train.py",
            )
        self._begin = [program, *(["--namespace", namespace] if namespace else [])]

    def _ask(self, *words: str, given: str | None = None, timeout: float = _TIMEOUT) -> Any:
        # In a session of its own: Ctrl-C is for this process, which deletes what was made.
        return subprocess.run(
            [*self._begin, *words], input=given, capture_output=True, text=True, timeout=timeout,
            start_new_session=True, stdin=None if given is not None else subprocess.DEVNULL,
        )  # fmt: skip

    def create(self, pods: Pods, made: list[str]) -> None:
        """Make the objects, and add the names of those that were made to ``made``."""
        said = self._ask("create", "-f", "-", "-o", "name", given=as_text(pods))
        made += said.stdout.split()
        if said.returncode == 0:
            return
        reason = _last_line(said.stderr)
        if "AlreadyExists" in said.stderr:
            raise ArgumentError(
                "`name` must be one that no other objects have.",
                received=f"{pods.name}: {reason}",
                fix='Pass another name, such as name="digits-2", or delete the others.',
            )
        raise ClusterStartError(
            "Kubernetes must accept the objects of the Job.",
            received=reason,
            fix="See what it names, and try: kubectl auth can-i create jobs",
        )

    def get(self, *words: str) -> Any:
        """What Kubernetes knows of objects; None if it does not answer now.

        Raises:
            ClusterStartError: There is no such object any more.
        """
        try:
            said = self._ask("get", *words, "-o", "json")
        except subprocess.TimeoutExpired:
            return None
        if "NotFound" in said.stderr:
            raise ClusterStartError(
                "The Job must stay until its pods have ended.",
                received=f"it was deleted: {_last_line(said.stderr)}",
                fix="Run it again: a distributed_fit() with resume=True goes on at its checkpoint.",
            )
        return json.loads(said.stdout) if said.returncode == 0 else None

    def logs(self, pod: str) -> subprocess.Popen[str]:
        """Start to follow the output of a pod."""
        return subprocess.Popen(
            [*self._begin, "logs", "--follow", pod], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects, and wait until their pods have ended."""
        if names:
            words = ["--ignore-not-found", "--cascade=foreground", "--wait=true"]
            self._ask("delete", *names, *words, timeout=_TIMEOUT * 10)


def _last_line(text: str) -> str:
    return next(iter(text.strip().splitlines()[-1:]), "kubectl says nothing")
