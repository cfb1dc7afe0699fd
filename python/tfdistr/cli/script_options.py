"""What ``tfdistr run`` takes: from flags, from a file, or from R."""

from __future__ import annotations

from argparse import REMAINDER
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tfdistr.cli.flags import ENV, option, with_checks
from tfdistr.cli.host_list import Hosts, read_hostfile
from tfdistr.clusters.cluster import Cluster
from tfdistr.clusters.environment import check_env
from tfdistr.clusters.local.cluster import describe_local_cluster
from tfdistr.clusters.slurm.cluster import slurm_cluster
from tfdistr.clusters.slurm.programs import in_allocation, nodes_of_allocation
from tfdistr.clusters.ssh.cluster import ssh_cluster
from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import (
    COMMUNICATION,
    argument,
    check_choice,
    check_int,
    check_optional_int,
    check_optional_path,
    check_seconds,
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


def log_folder(log_dir: str, link: Path | None = None) -> Path:
    """Make a folder for logs, if it is not there.

    Args:
        log_dir: Its path.
        link: A free path that will lead to it.

    Raises:
        ArgumentError: There can be no such folder.
    """
    folder = Path(log_dir).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if link is not None:
            link.symlink_to(folder, target_is_directory=True)
    except OSError as error:
        raise ArgumentError(
            "`log_dir` must be a folder, or be free for one.",
            received=f"{folder}: {error.strerror}",
            fix="Name another folder.",
        ) from error
    return folder


def check_script(name: str, value: Any) -> str:
    """Return the path of a script, if it is a file of Python or R.

    Raises:
        ArgumentError: It is not, or is not there.
    """
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


@attrs.frozen(kw_only=True, field_transformer=with_checks)
class Workers:
    """The workers that run a script, or a test."""

    workers: int | str | None = option(
        help='workers on all hosts together, or "gpus" (default: 2 here, one on each host)', also=["-n"]
    )
    hosts: Sequence[str] | None = option(help="the hosts", metavar="HOST,...")
    hostfile: str | None = option(
        check_optional_path, help='a host on each line, such as "node-1 slots=2"', metavar="FILE"
    )
    cores_per_worker: int | None = option(check_optional_int, help="cores of a worker", gone=["--cores"])
    communication: str = option(
        check_choice, COMMUNICATION, default="auto", help="auto (default), mpi, ring or nccl"
    )
    env: Mapping[str, str] = attrs.field(factory=dict, converter=check_env, repr=False, metadata=ENV)
    start_timeout: float = option(
        check_seconds, example="300.0", default=300.0, help="how long the workers may take to start"
    )
    ssh: str | None = option(help="what reaches the hosts, and its options", metavar="COMMAND")

    def cluster(self, *, follow: bool, warm: bool) -> Cluster:
        """The cluster of these workers: on the hosts, on the nodes of Slurm's allocation, or here.

        Raises:
            ArgumentError: The hosts are given twice, or the number of workers does not fit them.
        """
        common: dict[str, Any] = {
            "cores_per_worker": self.cores_per_worker, "env": self.env, "follow": follow,
            "start_timeout": self.start_timeout,
        }  # fmt: skip
        hosts = self._hosts()
        if hosts is not None:
            each = hosts.workers_per_host(self.workers)
            return ssh_cluster(hosts.names, each, ssh=self.ssh, warm=warm, **common)
        if in_allocation() and self.workers != "gpus":
            return slurm_cluster(*self._nodes(), **common)
        return describe_local_cluster(2 if self.workers is None else self.workers, warm=warm, **common)

    def _nodes(self) -> tuple[int | None, int | None]:
        """The number of nodes and of workers on each node; None for what the allocation says."""
        if self.workers is None:
            return None, None
        workers, nodes = check_int("workers", self.workers), len(nodes_of_allocation())
        if workers < nodes:
            return workers, 1
        if workers % nodes:
            raise ArgumentError(
                "`workers` must be a multiple of the number of nodes of Slurm's allocation.",
                received=f"{workers} workers, and {nodes} nodes",
                fix=f"Pass {workers // nodes * nodes} or {(workers // nodes + 1) * nodes} workers.",
            )
        return nodes, workers // nodes

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
