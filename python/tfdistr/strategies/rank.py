"""The rank of this process: its worker index, the number of workers, and whether it is the chief.

The first of these sources that knows the rank determines it:

1. the strategy in whose scope the call is;
2. the cluster in TF_CONFIG;
3. the last strategy for several workers that this process has made;
4. the launcher that has started this process: ``mpiexec`` as a rank, ``srun`` as a rank or a task, Kubernetes
   as a pod of a Job.

If no source knows it, the process is the only worker.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from typing import TYPE_CHECKING, NamedTuple

from tfdistr.collectives.mpi.world import launched_by_mpi
from tfdistr.errors import ClusterConfigError
from tfdistr.rendezvous.config import cluster_from_env
from tfdistr.rendezvous.launcher_ranks import launcher_of, ranks
from tfdistr.rendezvous.pods import place_in_job
from tfdistr.rendezvous.slurm_step import place_in_step

if TYPE_CHECKING:
    import tensorflow as tf


class Rank(NamedTuple):
    """The rank of a process among the workers.

    Attributes:
        worker_index: Index among the workers that train; None if this task does not train.
        num_workers: Number of workers that train.
        is_chief: Whether this process writes for all workers.
        by: The source of the answer.
    """

    worker_index: int | None
    num_workers: int
    is_chief: bool
    by: str


_own_strategy: list[weakref.ref[tf.distribute.Strategy]] = []


def is_chief() -> bool:
    """Return whether this process writes checkpoints and logs for all workers.

    The first of these that knows answers: the strategy in whose scope the call is; the cluster in TF_CONFIG;
    the strategy that this process has made; the launcher that has started it (``mpiexec``, ``srun``,
    Kubernetes), whose rank 0 is the chief. The call works before a strategy is made. A process that is alone
    is its own chief.

    Raises:
        ClusterConfigError: TF_CONFIG is not valid.

    Example:
        >>> tfdistr.is_chief()
        True
    """
    return rank_of_process().is_chief


def worker_index() -> int | None:
    """Return the index of this worker, from 0.

    Only workers that train have an index; the index of the chief is 0. ``is_chief()`` lists the sources of
    the answer. The index is 0 in a process that is alone. It is None in a task of TF_CONFIG that does not
    train.

    Raises:
        ClusterConfigError: TF_CONFIG is not valid.

    Example:
        >>> tfdistr.worker_index()
        0
    """
    return rank_of_process().worker_index


def num_workers() -> int:
    """Return the number of workers that train.

    ``is_chief()`` lists the sources of the answer. The number is 1 in a process that is alone.

    Raises:
        ClusterConfigError: TF_CONFIG is not valid.

    Example:
        >>> tfdistr.num_workers()
        1
    """
    return rank_of_process().num_workers


def rank_of_process() -> Rank:
    """Return the rank of this process, from the first source that knows it."""
    known = _of_strategy(_in_scope(), "the strategy of the scope")
    if known is not None:
        return known
    config = cluster_from_env()
    if config is not None:
        return Rank(config.worker_index, config.num_workers, config.is_chief, "TF_CONFIG")
    made = _own_strategy[0]() if _own_strategy else None
    return _of_strategy(made, "the strategy") or _of_launcher() or Rank(0, 1, True, "nobody")


def note_strategy(strategy: object) -> None:
    """Record that this process has made a strategy for several workers."""
    _own_strategy[:] = [weakref.ref(strategy)]


def _in_scope() -> tf.distribute.Strategy | None:
    tf = sys.modules.get("tensorflow")  # without the import there is no scope
    return tf.distribute.get_strategy() if tf is not None else None


def _of_strategy(strategy: tf.distribute.Strategy, by: str) -> Rank | None:
    """Return the rank that a tfdistr strategy knows; None for TensorFlow's own strategies."""
    if getattr(strategy, "is_chief", None) is None:
        return None
    return Rank(int(strategy.worker_index), int(strategy.num_workers), bool(strategy.is_chief), by)


def _of_launcher() -> Rank | None:
    by = "the launcher of this process"
    with contextlib.suppress(ClusterConfigError):  # joining raises a better error
        step = None if launched_by_mpi() else place_in_step() or place_in_job()
        if step is not None:
            return Rank(*step, step[0] == 0, by)
    told, workers = launcher_of(), ranks()
    if told is None or not told[1] < workers:
        return None
    return Rank(told[1], workers, told[1] == 0, by)
