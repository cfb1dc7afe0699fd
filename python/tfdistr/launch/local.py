"""A cluster on this machine."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfdistr._tf_config import show
from tfdistr.arguments import flag, positive, whole
from tfdistr.cluster import ClusterConfig, split_address, tf_config
from tfdistr.errors import ArgumentError, ClusterStartError

from .cores import check_cores, share_of
from .gpus import one_gpu_each
from .loopback import keep_to_loopback
from .ports import free_ports
from .process import PARENT, WorkerProcess, stop

_HOST = "127.0.0.1"
_OWN = ("TF_CONFIG", PARENT)
#: Said only if the user's environment does not: what TensorFlow and gRPC print at the start hides errors.
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "ERROR"}


@dataclass(frozen=True)
class LocalCluster:
    """Workers on this machine, each a process of its own. Made by `local_cluster`, which see."""

    workers: int = 2
    env: Mapping[str, str] | None = field(default=None, hash=False, repr=False)  # may hold secrets
    follow: bool = False
    start_timeout: float = 300.0
    cores_per_worker: int | None = None
    ps: int = 0
    gpus: tuple[str, ...] = ()  # that of each worker; none if all see all

    def __post_init__(self) -> None:
        object.__setattr__(self, "workers", whole("workers", self.workers))
        object.__setattr__(self, "ps", whole("ps", self.ps, minimum=0))
        object.__setattr__(self, "env", check_env(self.env))
        timeout = positive("start_timeout", self.start_timeout, of=" of seconds", example="300.0")
        object.__setattr__(self, "start_timeout", timeout)
        object.__setattr__(self, "follow", flag("follow", self.follow))
        object.__setattr__(self, "cores_per_worker", check_cores(self.workers, self.cores_per_worker))

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> list[WorkerProcess]:
        """Start every worker once, on ports that are free now.

        Args:
            command: The program of a worker and its arguments, to which two are added: `run_dir` and the
                index of the worker.
            run_dir: The directory of the run.

        Returns:
            The workers in order; whoever called has to `stop` them.

        Raises:
            ClusterStartError: If there are too few ports, or the program cannot be started. None is
                left running then.
        """
        plan = tf_config(worker=[f"{_HOST}:{port}" for port in free_ports(self.workers)])
        return launch(
            lambda index: self.start_process(index, command, run_dir, plan[index], self.environment(index)),
            self.workers,
        )

    def start_process(
        self,
        index: int,
        command: Sequence[str],
        run_dir: str | os.PathLike[str],
        config: ClusterConfig,
        env: Mapping[str, str],
    ) -> WorkerProcess:
        """Start one process of the cluster, with environment variables of its own."""
        whole = {**os.environ, **env, PARENT: str(os.getpid()), **config.to_env()}
        loopback = keep_to_loopback(whole)
        loopback.warn([split_address(each)[1] for addresses in config.jobs.values() for each in addresses])
        arguments = loopback.command([*command, os.fspath(run_dir), str(index)])
        env = loopback.environment(whole)
        try:
            return WorkerProcess(index, arguments, env=env, run_dir=run_dir, files=loopback.files)
        except OSError as error:
            worker = config.task.type == "worker"
            name = f"Worker {index} of {self.workers}" if worker else f"The process of {config.task}"
            raise ClusterStartError(
                f"{name} could not be started: {error}.",
                received=shlex.join(arguments),
                fix="See what the system names: the program must exist and be executable, and the run "
                "directory be writable.",
            ) from error

    def environment(self, index: int) -> dict[str, str]:
        """The environment variables of worker ``index`` that this process does not have."""
        share = share_of(index, self.workers, self.cores_per_worker)
        own = {"CUDA_VISIBLE_DEVICES": self.gpus[index]} if self.gpus else {}
        return {**worker_defaults(), **share, **(self.env or {}), **own}


def local_cluster(
    workers: int | str = 2,
    *,
    ps: int = 0,
    cores_per_worker: int | None = None,
    env: Mapping[str, str] | None = None,
    follow: bool = False,
    start_timeout: float = 300.0,
) -> LocalCluster:
    """Describe a cluster of worker processes on this machine.

    Nothing is started yet. The workers listen on ports that are chosen when they start, talk to each other
    over the loopback address, and end with the process that started them. Other machines do not reach them,
    nor anything else that listens in their processes: see SECURITY.md, also for how to change that.

    Args:
        workers: How many; the number must be whole and at least 1. With "gpus" one for each GPU that this
            process sees (or ``env`` lets see), which sees that one only.
        ps: How many parameter servers beside them, for ``strategy="parameter_server"``. A process that is the
            chief is then started, too.
        cores_per_worker: On how many cores of this machine each worker runs, with as many threads. By default
            the workers share all cores that this process can use, fairly; where there are fewer cores than
            workers, several workers share one.
        env: Environment variables for the workers, text to text, beside those of this process.
        follow: Whether to show what the workers print as it comes, each line after "[worker 1] ". It is in
            a file for each worker in any case.
        start_timeout: Seconds until every worker must have joined the cluster.

    Returns:
        The cluster, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: If an argument is not of that form.

    Example:
        >>> local_cluster(workers=4).workers
        4
    """
    gpus = one_gpu_each(check_env(env)) if isinstance(workers, str) and workers == "gpus" else ()
    count = len(gpus) if isinstance(workers, str) and gpus else workers
    return LocalCluster(count, env, follow, start_timeout, cores_per_worker, ps, gpus)  # type: ignore[arg-type]


def launch(start: Callable[[int], WorkerProcess], count: int) -> list[WorkerProcess]:
    """Start processes, given what starts that with an index: all of them or none."""
    processes: list[WorkerProcess] = []
    try:
        processes.extend(map(start, range(count)))
    except BaseException:
        stop(processes)
        raise
    return processes


def worker_defaults() -> dict[str, str]:
    """Environment variables of every worker, before which those of the user come."""
    quiet = {name: value for name, value in _QUIET.items() if name not in os.environ}
    return {**quiet, "PYTHONUNBUFFERED": "1"}


def check_env(env: Any) -> dict[str, str]:
    """``env``, if it maps names of environment variables to text. No error shows a value."""
    if env is not None and not isinstance(env, Mapping):
        raise ArgumentError(
            "`env` must map the names of environment variables to their values.",
            received=_kind(env),
            fix='Pass for example env={"OMP_NUM_THREADS": "1"}; in R, c(OMP_NUM_THREADS = "1").',
        )
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not name or set(name) & {"=", "\0"}:
            raise ArgumentError(
                "Each name in `env` must be the name of an environment variable.",
                received=show(name.partition("=")[0] + "=..." if "=" in str(name) else name),
                fix='Write it like "OMP_NUM_THREADS", without a "=".',
            )
        if name in _OWN:
            raise ArgumentError(
                f"`env` must not set {name}: the launcher gives each worker its own.",
                received=f"env with {name}",
                fix=f"Leave {name} out. Workers at addresses of your own are started by hand.",
            )
        if not isinstance(value, str) or "\0" in value:
            raise ArgumentError(
                f"`env` must give {name} a value that is text.",
                received="text with a null character" if isinstance(value, str) else _kind(value),
                fix='Put it in quotes, like "1".',
            )
    return dict(env or {})


def _kind(value: object) -> str:
    return f"an object of class {type(value).__name__}"
