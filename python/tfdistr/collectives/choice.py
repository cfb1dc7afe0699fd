"""The choice of the gradients' backend: MPI or not. See ``collectives/nccl.py`` for the ring or NCCL."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tfdistr.collectives.mpi.agreement import Talks
from tfdistr.collectives.mpi.joining import Joining
from tfdistr.collectives.mpi.world import MpiLibrary, launched_by_mpi
from tfdistr.errors import ClusterStartError
from tfdistr.rendezvous.config import cluster_from_env
from tfdistr.rendezvous.lifelines import Lifelines
from tfdistr.rendezvous.meeting import cluster_to_join

if TYPE_CHECKING:
    from tfdistr.collectives.communication_options import Exchange
    from tfdistr.collectives.interface import Collectives

log = logging.getLogger("tfdistr")

#: The warning for the user when the ring takes the place of MPI.
NO_MPI = (
    "The gradients are exchanged with the ring, because MPI is not available: %s. On CPUs a step may take "
    "three times as long. Install the same mpich and mpi4py on each host, let them connect to each other, "
    'and have room in /dev/shm, or pass communication="ring".'
)
_SEES_A_GPU = "it sees a GPU"


def chooses_mpi(communication: str) -> bool:
    """Return whether an MPI launcher has started this process, and its collectives use MPI."""
    if communication == "mpi":
        return launched_by_mpi() or cluster_to_join() is None
    return communication == "auto" and launched_by_mpi() and cluster_from_env() is None


def nccl_or_ring(communication: str) -> str:
    """Return "ring" for "nccl" if TensorFlow sees no GPU; else ``communication``. Initializes no device."""
    return "ring" if communication == "nccl" and not _sees_gpu() else communication


class MpiIfAllCan:
    """The choice of MPI, if all workers can be ranks of one MPI job; else of the ring or NCCL."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange, self._is_required = exchange, exchange.communication == "mpi"
        self._library, self.obstacle = None, ""
        if not self._is_required and _sees_gpu():
            self.obstacle = _SEES_A_GPU
            return
        try:
            self._library = MpiLibrary()
        except ClusterStartError as error:
            self.obstacle = str(error.received)

    def join(self, talks: Talks, lifelines: Lifelines, heartbeat_timeout: float) -> Collectives | None:
        """Become a rank together with the others; return None if they cannot and MPI was not requested."""
        library = self._library
        agreement = talks.agree(library.version if library else "", self.obstacle)
        if agreement.obstacle and self._is_required:
            raise talks.error(agreement.obstacle)
        if agreement.obstacle or library is None:
            if talks.rank == 0:
                _say_why(agreement.obstacle)
            return None
        if talks.rank == 0 and not self._is_required:
            log.info("communication: mpi, because all workers have %s", library.version)
        joining = Joining(talks, agreement, library, talks.timeout)
        comm = joining.start()
        from tfdistr.collectives.mpi.collectives import MpiCollectives

        collectives = MpiCollectives(
            comm, self._exchange.bytes_per_pack, heartbeat_timeout, timeout=self._exchange.timeout_seconds
        )
        joining.finish()
        several_nodes = len(set(agreement.nodes)) > 1
        collectives.watch(lifelines, talks.tasks, joining.end, heartbeats=several_nodes)
        return collectives


def _say_why(obstacle: str) -> None:
    """Log why MPI is not used, and what it costs."""
    if not obstacle.endswith(_SEES_A_GPU):  # then the choice between NCCL and the ring is logged
        log.warning(NO_MPI, obstacle)


def _sees_gpu() -> bool:
    import tensorflow as tf  # the launcher has not imported it

    return bool(tf.config.get_visible_devices("GPU"))
