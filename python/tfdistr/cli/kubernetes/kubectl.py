"""The program ``kubectl``, through which the objects of a Job are made, watched and deleted."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from tfdistr.cli.kubernetes.manifests import as_text
from tfdistr.cli.kubernetes.pod_options import Pods
from tfdistr.errors import ArgumentError, ClusterStartError
from tfdistr.utils.interrupts import uninterrupted

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

    def _start(self, *words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        # In a session of its own: Ctrl-C is for this process, which deletes what was made.
        return subprocess.Popen(
            [*self._begin, *words], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip

    def create(self, pods: Pods, made: list[str]) -> None:
        """Make the objects. The names of those that were made are in ``made``, also if this is interrupted.

        Raises:
            ArgumentError: Objects of this name exist.
            ClusterStartError: Kubernetes refuses the objects, or does not answer.
        """
        process: subprocess.Popen[str] | None = None
        try:
            with uninterrupted():  # until the process is known
                process = self._start("create", "-f", "-", "-o", "name", stdin=subprocess.PIPE)
            output, error = process.communicate(as_text(pods), timeout=_TIMEOUT)
        except subprocess.TimeoutExpired:
            assert process is not None
            process.terminate()
            output, error = process.communicate()
            error = error or f"no answer within {_TIMEOUT:g} s"
        except BaseException:
            if process is not None:
                made += process.communicate()[0].split()
            raise
        made += output.split()
        if process.returncode == 0:
            return
        reason = _last_line(error)
        if "AlreadyExists" in error:
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
        """Return what Kubernetes knows of objects; None if it does not answer now."""
        status, output, error = self._ask(_TIMEOUT, "get", *words, "-o", "json")
        if "NotFound" in error:
            raise ClusterStartError(
                "The Job must stay until its pods have ended.",
                received=f"it was deleted: {_last_line(error)}",
                fix="Run it again: a distributed_fit() with resume=True continues at its checkpoint.",
            )
        return json.loads(output) if status == 0 else None

    def _ask(self, timeout: float, *words: str) -> tuple[int, str, str]:
        """The exit status and the output of a command; one that takes too long is ended."""
        process = self._start(*words)
        try:
            output, error = process.communicate(timeout=timeout)
        except BaseException as failure:
            process.kill()
            process.communicate()
            if not isinstance(failure, subprocess.TimeoutExpired):
                raise
            return 1, "", f"no answer within {timeout:g} s"
        return process.returncode, output, error

    def logs(self, pod: str) -> subprocess.Popen[str]:
        """Start to follow the output of a pod."""
        return subprocess.Popen(
            [*self._begin, "logs", "--follow", pod], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip

    def delete(self, names: Sequence[str]) -> str | None:
        """Delete objects, and wait until their pods have ended. Returns why they may still be there."""
        if not names:
            return None
        words = ["--ignore-not-found", "--cascade=foreground", "--wait=true"]
        status, _, error = self._ask(_TIMEOUT * 10, "delete", *names, *words)
        return _last_line(error) if status else None


def _last_line(text: str) -> str:
    return next(iter(text.strip().splitlines()[-1:]), "kubectl says nothing")
