"""Clusters whose workers run in actors of Ray; TensorFlow's collectives join them."""

from __future__ import annotations

import base64
import json
import math
import os
import pickle
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard

import attrs

from tfdistr.clusters.cluster import Cluster
from tfdistr.clusters.environment import of_this_process, worker_defaults
from tfdistr.clusters.guard import HEARTBEAT, PLACE
from tfdistr.clusters.ray.workers import RayJob
from tfdistr.clusters.remote_worker import Message, RemoteWorker
from tfdistr.errors import ArgumentError, ClusterStartError
from tfdistr.rendezvous.config import tf_config
from tfdistr.rendezvous.tf_config import join_address
from tfdistr.rendezvous.token import with_token
from tfdistr.schemas import show
from tfdistr.utils.arguments import argument, check_choice, check_int, check_text
from tfdistr.utils.describe import number_of

_CORE = Path(__file__).resolve().parents[2]
_LOOPBACK = "127.0.0.1"
# What Ray tells an actor: its devices, and Ray itself. The actor's own variables are right.
_OF_RAY = re.compile(
    r"RAY_.*|CUDA_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES|HIP_VISIBLE_DEVICES|TPU_VISIBLE_CHIPS"
)
# What a runtime environment may set.
_OF_RUNTIME_ENV = re.compile(r"PATH|PYTHONPATH|VIRTUAL_ENV|CONDA_.*|LD_LIBRARY_PATH")


# How Ray spreads the workers over its nodes.
_STRATEGIES = ("SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK")
# The resources that all clusters have, and their arguments.
_SHARED = {"CPU": ("cores", "cores_per_worker"), "GPU": ("GPUs", "gpus_per_worker")}
_ADDRESS = re.compile(r"local|auto|(ray://)?(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}", re.ASCII)


def _resources(name: str, value: object) -> dict[str, float]:
    """Return what each worker needs beside cores and GPUs, as numbers by the names that Ray gives to them."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ArgumentError(
            f"`{name}` must map names of Ray resources to amounts.",
            received=show(value),
            fix=f'Pass {name}={{"memory": 8000000000}}, for example.',
        )
    for key, amount in value.items():
        if not isinstance(key, str) or not key:
            raise ArgumentError(
                f"Each name in `{name}` must be the name of a Ray resource.",
                received=show(key),
                fix='Write it like "memory", or as your nodes name it.',
            )
        if key in _SHARED:
            what, argument = _SHARED[key]
            raise ArgumentError(
                f"The number of {what} is an argument of all clusters.",
                received=f"{name}={show(value)}",
                fix=f"Pass {argument}={show(amount)}, and leave {key} out.",
            )
        if not _is_amount(amount):
            raise ArgumentError(
                f"`{name}` must give {key} a whole number, or a part of 1.",
                received=show(amount),
                fix=f'Pass {name}={{"{key}": 1}}, for example.',
            )
    return {key: int(amount) if amount == int(amount) else amount for key, amount in value.items()}


def _gpus(name: str, value: object) -> float | None:
    """Return the number of GPUs of a worker, if it is a whole number, or a part of 1 that workers share."""
    if value is None:
        return None
    if not _is_amount(value):
        raise ArgumentError(
            f"`{name}` must be a whole number, or a part of 1.", received=show(value), fix=f"Pass {name}=1."
        )
    return int(value) if value == int(value) else float(value)


def _is_amount(value: object) -> TypeGuard[float]:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 <= value < math.inf and (value <= 1 or value == int(value))


def _runtime_env(name: str, value: object) -> dict[str, Any] | None:
    """Return ``value``, if it is None or a Ray runtime environment."""
    try:
        if value is None or isinstance(value, Mapping):
            return None if not value else dict(json.loads(json.dumps(dict(value))))
        received = show(value)
    except TypeError as error:
        received = str(error)
    raise ArgumentError(
        f"`{name}` must be a Ray runtime environment, of texts, numbers, lists and mappings.",
        received=received,
        fix=f'Pass {name}={{"pip": ["pandas"]}}, for example.',
    )


@attrs.frozen(kw_only=True)
class RayCluster(Cluster):
    """Workers in actors of Ray. `ray_cluster` describes the arguments."""

    workers: int = argument(check_int, "workers", default=2)
    gpus_per_worker: float | None = argument(  # type: ignore[assignment]  # Ray can share a GPU
        _gpus, "gpus_per_worker", default=None
    )
    resources_per_worker: Mapping[str, float] = argument(_resources, "resources_per_worker", default=None)
    address: str | None = argument(
        check_text, "address", _ADDRESS, default=None, rule='the address of a Ray cluster, "auto" or "local"',
        fix='Pass address="10.0.0.1:6379", for example; "auto" is the Ray of this machine.',
    )  # fmt: skip
    placement_strategy: str = argument(check_choice, "placement_strategy", _STRATEGIES, default="SPREAD")
    runtime_env: Mapping[str, Any] | None = argument(_runtime_env, "runtime_env", default=None)

    @property
    def resources(self) -> dict[str, float]:
        """The resources that Ray reserves for each worker."""
        gpus = {} if self.gpus_per_worker is None else {"GPU": self.gpus_per_worker}
        return {"CPU": self.cores_per_worker or 1, **gpus, **self.resources_per_worker}

    def describe(self) -> str:
        """Say how many workers there are, and where."""
        where = "" if self.address is None else f" at {self.address}"
        needs = ", ".join(f"{amount} {name}" for name, amount in self.resources.items())
        return f"{number_of(self.workers, 'worker')} by Ray{where}, each with {needs}"

    def check(self) -> None:
        """Check that Ray is installed."""
        if find_spec("ray") is None:
            raise ClusterStartError(
                "ray_cluster() needs the Python package ray.",
                received=f"none in {sys.prefix}",
                fix="pip install 'tfdistr[ray]', or pass cluster=local_cluster(workers=2).",
            )

    def without(self, worker: int, min_workers: int) -> RayCluster | None:
        """This cluster with one worker less; None if fewer than ``min_workers`` would be left."""
        left = self.workers - 1
        return attrs.evolve(self, workers=left) if left >= min_workers else None

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> Sequence[RemoteWorker]:
        """Have Ray start every worker once, when it has a place for all; see `Cluster.start`."""
        address, group = self._place()
        folder = Path(run_dir).absolute()
        spec = {
            "address": address, "group": group, "workers": self.workers,
            "resources": self.resources, "strategy": self.placement_strategy,
            "runtime_env": self.runtime_env, "timeout": self._start_timeout,
            "start_timeout": self.start_timeout, "core": os.fspath(_CORE),
        }  # fmt: skip
        return RayJob(spec, lambda facts: self.starts(facts, command, folder), folder).workers

    def starts(self, facts: Sequence[Message], command: Sequence[str], run_dir: Path) -> list[dict[str, Any]]:
        """Return what each actor starts, from the facts about the places of all actors (see driver.py)."""
        # Workers on one machine are kept to themselves, as those of local_cluster().
        alone = len({fact["address"] for fact in facts}) == 1
        plan = tf_config(
            worker=[join_address(_LOOPBACK if alone else fact["address"], fact["port"]) for fact in facts]
        )
        own = {**self._of_this_process(), **self._threads(), **worker_defaults(self.env, self.tuning)}
        (common,) = with_token([own])
        made = []
        for index, fact in enumerate(facts):
            # A runtime environment, or another node, may have its Python elsewhere.
            program = fact["python"] if command[0] == sys.executable else command[0]
            guard = os.path.join(fact["core"], PLACE)
            spec = {
                "index": index, "host": fact["host"], "folder": os.getcwd(), "warm": None,
                "command": [program, *command[1:], os.fspath(run_dir), str(index)],
                "env": {**common, **plan[index].to_env()},
                "silence": max(self.heartbeat_timeout, 3 * HEARTBEAT),
                "loopback": fact["core"] if alone else None,
            }  # fmt: skip
            if self.runtime_env and "working_dir" in self.runtime_env:
                spec["folder"] = "."
            log = os.fspath(run_dir / "logs" / f"worker-{index}.log")
            made.append({"guard": [fact["python"], "-I", "-S", guard, "host"], "log": log, "spec": spec})
        return made

    def _of_this_process(self) -> dict[str, str]:
        """The variables of this process that workers get, where Ray or the runtime environment set none."""
        given = set((self.runtime_env or {}).get("env_vars", {}))
        return {
            name: value
            for name, value in of_this_process().items()
            if not _OF_RAY.fullmatch(name)
            and not (self.runtime_env and (name in given or _OF_RUNTIME_ENV.fullmatch(name)))
        }

    def _threads(self) -> dict[str, str]:
        """As many threads as a worker has processors; Ray binds no process to them."""
        names = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
        return {name: str(self.cores_per_worker or 1) for name in names if name not in os.environ}

    def _place(self) -> tuple[str, str | None]:
        """The address of Ray, and the placement group of the caller, if it has places for the workers."""
        ray = sys.modules.get("ray")
        if self.address is None and ray is not None and ray.is_initialized():
            group = ray.util.get_current_placement_group()
            mine = group is not None and self._fits(group.bundle_specs[1:])
            text = base64.b64encode(pickle.dumps(group)).decode() if mine else None
            return str(ray.get_runtime_context().gcs_address), text
        return self.address or os.environ.get("RAY_ADDRESS") or "local", None

    def _fits(self, bundles: Sequence[Mapping[str, float]]) -> bool:
        """Return whether each of the first places of a group has what a worker needs."""
        need = self.resources.items()
        first = bundles[: self.workers]
        enough = all(bundle.get(name, 0) >= amount for bundle in first for name, amount in need)
        return len(first) == self.workers and enough


def ray_cluster(
    workers: int = 2,
    *,
    resources_per_worker: Mapping[str, float] | None = None,
    address: str | None = None,
    placement_strategy: str = "SPREAD",
    runtime_env: Mapping[str, object] | None = None,
    cores_per_worker: int | None = None,
    gpus_per_worker: float | None = None,
    env: Mapping[str, str] | None = None,
    follow: bool = False,
    tuning: bool = True,
    start_timeout: float | None = None,
    heartbeat_timeout: float = 30.0,
) -> RayCluster:
    """Describe a cluster of workers in actors of Ray.

    This call starts nothing. `distributed_fit` reserves the resources of all workers by a placement group,
    and starts an actor for each worker. The actor runs the worker in a process of its own. Without
    ``address``, it joins the Ray that this process has joined, or the Ray that RAY_ADDRESS names, or it
    starts a Ray on this machine, which ends with the job. All nodes must see the run directory under the same
    path, and have tfdistr; by default the run directory is a new folder of the working directory. All workers
    end when the process that started them ends, even if it is killed.

    Called in a trial of Ray Tune whose placement group has a place for each worker after the first place, the
    workers take these places.

    Args:
        workers: The number of workers, a whole number of at least 1.
        resources_per_worker: What each worker needs beside cores and GPUs, amounts by the names of Ray:
            ``{"memory": 8e9}``.
        address: The address of a Ray cluster, such as "10.0.0.1:6379"; "auto" for the Ray that runs on this
            machine, or "local" to start one.
        placement_strategy: How Ray spreads the workers over its nodes: "SPREAD", "PACK", "STRICT_SPREAD" or
            "STRICT_PACK".
        runtime_env: The runtime environment of the workers, as Ray takes it: ``{"pip": ["pandas"]}``.
        cores_per_worker: The number of CPUs that Ray reserves for each worker, which runs as many threads; by
            default 1.
        gpus_per_worker: The number of GPUs that Ray gives each worker, which sees only its own, or the part
            of one that workers share, such as 0.5; by default none.
        env: Environment variables for the workers, text to text, added to the variables of this process.
        follow: Whether to show the output of the workers at once, each line after "[worker 1] ".
        tuning: Whether to choose settings that make TensorFlow fast on its processor; see `local_cluster`.
        start_timeout: Seconds that the workers may wait for their resources, and seconds from then until
            every worker must have joined the cluster. By default the workers wait for other jobs for any
            time, a cluster whose nodes are too small is refused at once, and the workers have 300 seconds to
            join.
        heartbeat_timeout: Seconds without a heartbeat after which a worker counts as lost; see
            `local_cluster`.

    Returns:
        The cluster, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: If an argument does not have this form.

    Example:
        >>> ray_cluster(workers=4, cores_per_worker=2).workers
        4
    """
    return RayCluster(**locals())
