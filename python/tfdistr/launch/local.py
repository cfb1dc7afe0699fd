"""A cluster on this machine."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from tfdistr._utils.arguments import argument, flag, optional_whole, seconds, whole
from tfdistr._utils.processes import PARENT
from tfdistr.cluster.config import ClusterConfig, split_address, tf_config
from tfdistr.cluster.tf_config_json import show
from tfdistr.errors import ArgumentError, ClusterStartError, TfdistrError
from tfdistr.launch.cluster import EqualWorkers
from tfdistr.launch.cores import check_cores, share_of
from tfdistr.launch.gpus import one_gpu_each
from tfdistr.launch.loopback import keep_to_loopback
from tfdistr.launch.ports import free_ports
from tfdistr.launch.process import WorkerProcess, stop
from tfdistr.launch.warm.servers import warm_start

_HOST = "127.0.0.1"
_OWN = ("TF_CONFIG", PARENT)
#: Said only if the user's environment does not: what TensorFlow and gRPC print at the start hides errors.
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "ERROR"}
#: On one machine no worker need listen on the network. Those of MPICH would, at an interface's own address,
#: through UCX or, where that is chosen, libfabric. What the environment says is for jobs of several machines.
BY_MEMORY = {"UCX_TLS": "self,sm", "FI_PROVIDER": "shm"}
#: The program of a Python worker; the run directory and its index follow.
WORKER = (sys.executable, "-m", "tfdistr.jobs.worker")


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


@attrs.frozen
class LocalCluster(EqualWorkers):
    """Workers on this machine, each a process of its own. Made by `local_cluster`, which see."""

    workers: int = argument(whole, "workers", default=2)
    env: Mapping[str, str] | None = attrs.field(  # which may hold secrets
        default=None, converter=check_env, hash=False, repr=False
    )
    follow: bool = argument(flag, "follow", default=False)
    start_timeout: float = argument(seconds, "start_timeout", default=300.0, example="300.0")
    cores_per_worker: int | None = argument(optional_whole, "cores_per_worker", default=None)
    ps: int = argument(whole, "ps", default=0, minimum=0)
    gpus: tuple[str, ...] = ()  # that of each worker; none if all see all
    warm: bool = argument(flag, "warm", default=True)

    def __attrs_post_init__(self) -> None:
        check_cores(self.workers, self.cores_per_worker)

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
        program = [*command, os.fspath(run_dir), str(index)]
        arguments = loopback.command(program)
        warm = warm_start(program, whole, loopback) if self.warm else None
        env = loopback.environment(whole)
        try:
            return WorkerProcess(index, arguments, env=env, run_dir=run_dir, files=loopback.files, warm=warm)
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
        return {**self.common_environment(), **share, **own}

    def without(self, worker: int, min_workers: int) -> LocalCluster | None:
        """A cluster without a worker that was lost; None if fewer than ``min_workers`` would be left."""
        if self.workers - 1 < min_workers:
            return None
        gpus = tuple(gpu for place, gpu in enumerate(self.gpus) if place != worker)
        return attrs.evolve(self, workers=self.workers - 1, gpus=gpus)

    def common_environment(self) -> dict[str, str]:
        """Those of them that all processes have."""
        return {**worker_defaults(), **BY_MEMORY, **(self.env or {})}

    def warm_up(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        """Start what forks the workers in the background, if they are to start warm.

        Args:
            command: The program of a worker and its arguments.
            env: Environment variables of workers of this language, before which those of the user come.
        """
        whole = {**os.environ, **(env or {}), **self.environment(0)}
        with contextlib.suppress(TfdistrError):  # the job that this is for raises it
            if self.warm:
                warm_start(command, whole, keep_to_loopback(whole))


def local_cluster(
    workers: int | str = 2,
    *,
    ps: int = 0,
    cores_per_worker: int | None = None,
    env: Mapping[str, str] | None = None,
    follow: bool = False,
    start_timeout: float = 300.0,
    warm: bool = True,
) -> LocalCluster:
    """Describe a cluster of worker processes on this machine.

    No worker is started yet. The workers listen on ports that are chosen when they start, talk to each other
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
        warm: Whether workers are forks of a process that has imported TensorFlow and Keras, so that they
            start in some 2 seconds instead of 10. This call starts that process in the background. It serves
            all jobs of this session, and ends with it, after ten idle minutes, and by `stop_warm_workers`.
            Where a fork is not safe (macOS, a GPU in use), workers start cold, and their logs say why.

    Returns:
        The cluster, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: If an argument is not of that form.

    Example:
        >>> local_cluster(workers=4).workers
        4
    """
    cluster = describe_local_cluster(
        workers, ps=ps, cores_per_worker=cores_per_worker, env=env, follow=follow,
        start_timeout=start_timeout, warm=warm,
    )  # fmt: skip
    cluster.warm_up(WORKER)
    return cluster


def describe_local_cluster(workers: int | str = 2, *, env: Any = None, **options: Any) -> LocalCluster:
    """What `local_cluster` returns, with nothing started in the background."""
    gpus = one_gpu_each(check_env(env)) if isinstance(workers, str) and workers == "gpus" else ()
    count = len(gpus) if isinstance(workers, str) and gpus else workers
    return LocalCluster(count, env, gpus=gpus, **options)  # type: ignore[arg-type]


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


def _kind(value: object) -> str:
    return f"an object of class {type(value).__name__}"
