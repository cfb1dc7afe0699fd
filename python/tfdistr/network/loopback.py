"""The protection of this machine's workers from other machines.

TensorFlow's server listens on all interfaces, whatever its address is. A client that reaches it can run code
as the user who trains. The server has no option to prevent this, so tfdistr protects it in one of two ways:

* "preload": a small library, loopback.c, makes their sockets listen on the loopback interface only. It is
  compiled at its first use.
* "namespace", if "preload" is not possible: the processes have their own network namespace. It has no other
  network, so functions that read data from a network fail. Therefore this way is the second.

If neither is possible, the user is warned. The environment variable `LOOPBACK` chooses a way; "none" means
neither.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfdistr.errors import ArgumentError, ClusterStartError
from tfdistr.network import namespace
from tfdistr.schemas import show
from tfdistr.utils.processes import run_program

log = logging.getLogger("tfdistr")

LOOPBACK = "TFDISTR_LOOPBACK"
"""The environment variable that chooses the way: one of `WAYS`; by default the first one that works."""
WAYS = ("preload", "namespace", "none")
SOURCE = Path(__file__).with_name("loopback.c")
_PRELOAD = "LD_PRELOAD"
_FILE = re.compile(r"/proc/\d+/fd/\d+")
_TIMEOUT = 60.0  # seconds for the compiler, and for each test of a way

# Prints the address of a server that binds to all interfaces. A second loopback address gives a free port.
# Another process may have the port at 127.0.0.1: so it is tried again.
_PROBE = """
import socket
for left in reversed(range(20)):
    with socket.socket() as other, socket.socket() as server:
        other.bind(("127.0.0.2", 0))
        try:
            server.bind(("", other.getsockname()[1]))
            print(server.getsockname()[0])
            break
        except OSError:
            if not left:
                raise
"""


@dataclass(frozen=True)
class Loopback:
    """The way that protects the processes of a job from other machines.

    Args:
        namespaces: Descriptors of a user and of a network namespace; -1 for the namespace of this process.
    """

    way: str
    reasons: tuple[str, ...] = ()
    library: Path | None = None
    namespaces: tuple[int, ...] = ()

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return ``env`` with the variables that a process needs for this way."""
        # NCCL listens at the address of the interface that it chooses.
        nccl = {"NCCL_SOCKET_IFNAME": "lo"} if self.way != "none" else {}
        # The user's libraries come first, because some must.
        preload = ":".join(filter(None, [env.get(_PRELOAD), str(self.library)])) if self.library else None
        return {**nccl, **env, **({_PRELOAD: preload} if preload else {})}

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs ``command`` in this way."""
        if not self.namespaces:
            return list(command)
        return [*_namespace("enter"), *map(str, self.namespaces), *command]

    @property
    def files(self) -> list[int]:
        return [file for file in self.namespaces if file >= 0]

    def warn(
        self, ports: Sequence[int | str], machine: str = "this machine", cluster: str = "local_cluster()"
    ) -> None:
        """Warn the user, once, if a job is open to other machines, or cannot reach them."""
        because = "; ".join(self.reasons)
        off = f'pass env={{"{LOOPBACK}": "none"}} to {cluster}'
        if self.way == "namespace" and self.reasons:
            _warn_once(
                "The workers have a network of their own, and reach no other: functions that read data over "
                f"one fail. There is no other way here to keep other machines out, because {because}. "
                f"Install a C compiler (cc), or, to leave the workers open to other machines, {off}."
            )
        elif self.way == "none" and self.reasons:
            named = f"port{'s' if len(ports) > 1 else ''} {', '.join(map(str, ports))}"
            _warn_once(
                f"As long as the job runs, whoever reaches {machine} over a network can run code as you, "
                f"through {named}: nothing keeps other machines out here, because {because}. Install a C "
                f"compiler (cc), or close {named} in the firewall; if no other machine can reach this one, "
                f"{off}."
            )


def keep_to_loopback(env: Mapping[str, str]) -> Loopback:
    """Choose the way that protects processes with the environment ``env`` from other machines."""
    asked = env.get(LOOPBACK)
    if asked is not None and asked not in WAYS:
        raise ArgumentError(
            f"The environment variable {LOOPBACK} must be one of {', '.join(WAYS)}.",
            received=show(asked),
            fix="Leave it out to use the first of these that works here.",
        )
    if asked == "none":
        return Loopback("none")
    reasons: list[str] = []
    for way in WAYS[:2] if asked is None else (asked,):
        made = _prepare(way)
        if isinstance(made, Loopback) and made.library and not made.library.is_file():
            _prepare.cache_clear()  # the library belonged to a parent of this fork, which has exited
            made = _prepare(way)
        if isinstance(made, Loopback):
            return replace(made, reasons=tuple(reasons))
        reasons.append(made)
    if asked is not None:
        raise ClusterStartError(
            f"{LOOPBACK}={asked} does not work on this machine.",
            received=reasons[0],
            fix=f"Leave {LOOPBACK} out to use the first way that works here.",
        )
    return Loopback("none", tuple(reasons))


def restore_preload() -> None:
    """Restore the user's value of LD_PRELOAD in this process.

    A worker calls this: other machines may have to reach the programs that the worker starts.
    """
    user, _, last = os.environ.get(_PRELOAD, "").rpartition(":")
    if _FILE.fullmatch(last):
        os.environ[_PRELOAD] = user
        if not user:
            del os.environ[_PRELOAD]


@functools.lru_cache(maxsize=2)
def _prepare(way: str) -> Loopback | str:
    """Prepare a way, once in a process. Return the reason, as text, if the way does not work."""
    if sys.platform != "linux":
        return "it works on Linux only"
    try:
        return _preload() if way == "preload" else _namespaces()
    except OSError as error:
        return str(error)


def _preload() -> Loopback:
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise OSError("there is no C compiler")
    with tempfile.TemporaryDirectory(prefix="tfdistr-") as folder:
        compiled = Path(folder, "loopback.so")
        _run([compiler, "-shared", "-fPIC", "-O2", "-o", str(compiled), str(SOURCE), "-ldl"])
        content = compiled.read_bytes()
    # A file in memory, without a name, ends with this process. No other user can write to it, and it works
    # where temporary folders do not allow programs.
    file = os.memfd_create("tfdistr-loopback")
    with open(file, "wb", closefd=False) as memory:
        memory.write(content)
    made = Loopback("preload", library=Path(f"/proc/{os.getpid()}/fd/{file}"))
    address = _run([sys.executable, "-I", "-S", "-c", _PROBE], made.environment(os.environ)).strip()
    if address != "127.0.0.1":
        os.close(file)
        raise OSError("programs ignore LD_PRELOAD")
    return made


def _namespaces() -> Loopback:
    with subprocess.Popen(
        _namespace("make"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        made = process.stdout.readline()
        files = [_if_other(process.pid, kind) for kind in ("user", "net")] if made else []
        _, said = process.communicate()
    if not made:
        raise OSError(f"cannot create a network namespace: {said.decode().strip()}")
    loopback = Loopback("namespace", namespaces=tuple(files))
    _run(loopback.command([sys.executable, "-I", "-S", "-c", ""]), files=loopback.files)
    return loopback


def _if_other(pid: int, kind: str) -> int:
    """Return a file descriptor of the namespace of a process; -1 if this process is in the same namespace."""
    path = f"/proc/{pid}/ns/{kind}"
    return -1 if os.path.samefile(path, f"/proc/self/ns/{kind}") else os.open(path, os.O_RDONLY)


def _namespace(what: str) -> list[str]:
    return [sys.executable, "-I", "-S", namespace.__file__, what]


def _run(command: Sequence[str], env: Mapping[str, str] | None = None, files: Sequence[int] = ()) -> str:
    """Run a program and return its output; OSError if it fails."""
    ended = run_program(command, _TIMEOUT, env=env, pass_fds=files)
    if ended.failure is not None:
        raise OSError(f"{command[0]} failed: {ended.failure}")
    return ended.output


@functools.lru_cache
def _warn_once(message: str) -> None:
    log.warning(message)
