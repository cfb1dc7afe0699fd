"""The arguments of ``tfdistr run``: from flags, from a file, or from R."""

from __future__ import annotations

import re
from argparse import REMAINDER
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import attrs

from tfdistr.cli.flags import ENV, option, with_checks
from tfdistr.clusters.cluster import Cluster, workers_of_each_host
from tfdistr.clusters.environment import check_env
from tfdistr.clusters.local.local_cluster import describe_local_cluster
from tfdistr.clusters.slurm.programs import in_allocation
from tfdistr.clusters.slurm.slurm_cluster import slurm_cluster
from tfdistr.clusters.ssh.ssh_cluster import ssh_cluster
from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import (
    COMMUNICATION,
    argument,
    check_choice,
    check_int,
    check_optional_int,
    check_optional_path,
    check_seconds,
    read_text,
)

#: The kinds of scripts, by the end of their names.
LANGUAGES = {".py": "python", ".r": "r"}


def check_arguments(name: str, value: Any) -> tuple[str, ...]:
    """Return the arguments of a script, if they are a list of text."""
    texts = isinstance(value, Sequence) and all(isinstance(word, str) for word in value)
    if isinstance(value, str) or not texts:
        raise ArgumentError(
            "`arguments` must be a list of text: the arguments of the script.",
            received=repr(value),
            fix='Pass arguments=["--epochs", "2"], for example.',
        )
    return tuple(value)


def make_log_folder(log_dir: str, link: Path) -> None:
    """Make a folder for logs, if it is not there, and a link to it."""
    folder = Path(log_dir).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder, target_is_directory=True)
    except OSError as error:
        raise ArgumentError(
            "`log_dir` must be a folder, or be free for one.",
            received=f"{folder}: {error.strerror}",
            fix="Name another folder.",
        ) from error


def check_script(name: str, value: object) -> str:
    """Return the path of a script, if it is a file of Python or R."""
    if not isinstance(value, str) or Path(value).suffix.lower() not in LANGUAGES:
        raise ArgumentError(
            "The script must be a file of Python (.py) or R (.R).",
            received=repr(value),
            fix="Name it like train.py or train.R.",
        )
    if not Path(value).is_file():
        raise ArgumentError(
            "The script must be a file that exists.",
            received=f"{value}, seen from {Path.cwd()}",
            fix="Correct the path.",
        )
    return value


# As mpiexec and others write them: "node-1", "node-1:2", "node-1 slots=2".
_LINE = re.compile(
    r"(?P<host>\[[^\]\s]+\]|[^\s:#=]+)(?:\s*:\s*(?P<count>\d+)|\s+slots\s*=\s*(?P<slots>\d+))?\Z"
)


@dataclass(frozen=True)
class Hosts:
    """Hosts with the same number of workers on each, or None if they do not say it."""

    names: Sequence[str]
    each: int | None = None


def read_hostfile(path: str) -> Hosts:
    """Read a file with a host on each line; "#" begins a comment."""
    text_of_file = read_text(
        path,
        rule="`hostfile` must name a file that can be read.",
        fix="Write a host on each line: node-1 slots=2",
    )
    hosts: dict[str, int | None] = {}
    for number, line in enumerate(text_of_file.splitlines(), start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        found = _LINE.match(text)
        if found is None or found["host"].strip("[]") in hosts:
            raise ArgumentError(
                "Each line of a hostfile must have one host, which no other line has.",
                received=f"line {number} of {path}: {text}",
                fix="Write it like: node-1 slots=2",
            )
        count = found["count"] or found["slots"]
        hosts[found["host"].strip("[]")] = None if count is None else int(count)  # ssh takes no brackets
    numbers = set(hosts.values())
    if len(numbers) != 1 or 0 in numbers:
        raise ArgumentError(
            "A hostfile must have at least one host, and the same number of workers for all.",
            received=", ".join(f"{host}: {'no number' if n is None else n}" for host, n in hosts.items())
            or f"{path} without a host",
            fix="Write a host on each line, each with the same slots=, or without it.",
        )
    return Hosts(tuple(hosts), numbers.pop())


@attrs.frozen(kw_only=True, field_transformer=with_checks)
class Workers:
    """The workers that run a script, or a test."""

    workers: int | None = option(
        check_optional_int, also=["-n"],
        help="workers on all hosts together (default: 2 here, or with --gpus-per-worker as many as there are "
        "GPUs for; one on each host; in a Slurm allocation as it says)",
    )  # fmt: skip
    workers_per_host: int | None = option(
        check_optional_int, help="workers on each host, instead of --workers"
    )
    hosts: Sequence[str] | None = option(help="the hosts", metavar="HOST,...")
    hostfile: str | None = option(
        check_optional_path, help='a host on each line, such as "node-1 slots=2"', metavar="FILE"
    )
    cores_per_worker: int | None = option(check_optional_int, help="cores of a worker")
    gpus_per_worker: int | None = option(
        check_optional_int, minimum=0, help="GPUs of a worker, which sees only its own (default: one)"
    )
    communication: str = option(
        check_choice, COMMUNICATION, default="auto", help="auto (default), mpi, ring or nccl"
    )
    env: Mapping[str, str] = attrs.field(factory=dict, converter=check_env, repr=False, metadata=ENV)
    start_timeout: float = option(
        check_seconds, example="300.0", default=300.0, help="how long the workers may take to start"
    )
    heartbeat_timeout: float = option(
        check_seconds, example="30.0", default=30.0,
        help="how long a worker may give no heartbeat before it counts as lost",
    )  # fmt: skip
    ssh: str | None = option(help="what reaches the hosts, and its options", metavar="COMMAND")

    def cluster(self, *, follow: bool, warm: bool) -> Cluster:
        """Return the cluster of these workers: on the hosts, on the nodes of Slurm's allocation, or here."""
        common: dict[str, Any] = {
            "cores_per_worker": self.cores_per_worker, "gpus_per_worker": self.gpus_per_worker,
            "env": self.env, "follow": follow, "start_timeout": self.start_timeout,
            "heartbeat_timeout": self.heartbeat_timeout,
        }  # fmt: skip
        hosts = self._hosts()
        each = self.workers_per_host or (hosts.each if hosts else None)
        if hosts is not None:
            return ssh_cluster(
                hosts.names, workers=self.workers, workers_per_host=each, ssh=self.ssh, warm=warm, **common
            )
        if in_allocation():
            return slurm_cluster(workers=self.workers, workers_per_host=each, **common)
        total = self.workers
        if self.workers_per_host is not None:  # this machine is the only host
            total = workers_of_each_host(self.workers, self.workers_per_host, 1)
        return describe_local_cluster(total, warm=warm, **common)

    def _hosts(self) -> Hosts | None:
        if self.hosts is not None and self.hostfile is not None:
            raise ArgumentError(
                "Give the hosts as a list or as a file, not as both.",
                received=f"hosts={list(self.hosts)} and hostfile={self.hostfile!r}",
                fix="Leave one of them out.",
            )
        if self.hostfile is not None:
            return read_hostfile(self.hostfile)
        return None if self.hosts is None else Hosts(self.hosts)


@attrs.frozen(kw_only=True, field_transformer=with_checks)
class Script(Workers):
    """A script, and the workers that run it."""

    script: str = option(
        check_script, default=attrs.NOTHING, positional={"nargs": "?"},
        help="a file of Python (.py) or R (.R)",
    )  # fmt: skip
    arguments: tuple[str, ...] = option(
        check_arguments, default=(), help="the arguments of the script", positional={"nargs": REMAINDER}
    )
    run_dir: str | None = option(check_optional_path, help="a new folder for events and logs", metavar="DIR")
    log_dir: str | None = option(
        check_optional_path, help="a folder for the logs of the workers", metavar="DIR"
    )
    max_restarts: int = option(
        check_int, minimum=0, default=0, help="how often all workers are started again after a failure"
    )
    rscript: str | None = argument(check_optional_path, "rscript", default=None)  # R passes its own

    @property
    def language(self) -> str:
        """The language of the script: "python" or "r"."""
        return LANGUAGES[Path(self.script).suffix.lower()]
