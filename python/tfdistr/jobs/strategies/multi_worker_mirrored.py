"""Equal workers, which exchange their gradients."""

from __future__ import annotations

from typing import Any, ClassVar

import attrs

from tfdistr.collectives.choice import chooses_mpi
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.in_process import AsWorker, train_here
from tfdistr.jobs.membership import JOINED
from tfdistr.jobs.outcome import Outcome
from tfdistr.jobs.strategies.base import WithTimeouts
from tfdistr.rendezvous.config import ClusterConfig
from tfdistr.training.job import Job
from tfdistr.utils.arguments import COMMUNICATION, GRADIENT_DTYPES, argument, check_choice


@attrs.frozen(kw_only=True)
class MultiWorkerMirrored(WithTimeouts):
    """Equal workers, which exchange their gradients. `multi_worker_mirrored` describes the options."""

    name: ClassVar[str] = "multi_worker_mirrored"
    maker: ClassVar[tuple[str, str]] = ("strategies.multi_worker_mirrored", "MultiWorkerMirroredStrategy")
    of_job: ClassVar[tuple[str, ...]] = (
        "communication", "virtual_workers", "start_timeout", "heartbeat_timeout"
    )  # fmt: skip
    has_virtual_workers: ClassVar[bool] = True

    communication: str = argument(check_choice, "communication", COMMUNICATION, default="auto")
    gradient_dtype: str = argument(check_choice, "gradient_dtype", GRADIENT_DTYPES, default="float32")

    @property
    def exchange(self) -> dict[str, Any]:
        return {"communication": self.communication, "gradient_dtype": self.gradient_dtype}

    @classmethod
    def fit_here(cls, job: Job, config: ClusterConfig | None, caller: Caller, run_dir: Any = None) -> Outcome:
        """Train in this process: alone, or as the task of the cluster in ``config``."""
        strategy: Any
        if config is not None or chooses_mpi(job.communication):
            strategy = JOINED.join(config, cls.arguments(job))
        elif job.virtual_workers is not None:
            strategy = cls.make(**cls.arguments(job))
        else:
            from tfdistr.strategies.worker_strategy import SingleWorker

            strategy = SingleWorker()
        return train_here(job, AsWorker(strategy), caller, run_dir)


def multi_worker_mirrored(
    *,
    communication: str = "auto",
    gradient_dtype: str = "float32",
    start_timeout: float | None = None,
    heartbeat_timeout: float | None = None,
) -> MultiWorkerMirrored:
    """Choose equal workers, each with a copy of the model, which exchange their gradients in each step.

    This is the default strategy of `distributed_fit`.

    Args:
        communication: The backend for the gradients: "ring" and "nccl" (one GPU per worker) of TensorFlow,
            "mpi", or "auto": NCCL if each worker sees a GPU of its own; MPI if none sees a GPU, all have the
            same MPICH, and they can connect to each other; else the ring. The chief says which, and why.
        gradient_dtype: The type of the gradients between workers: "float32", or "bfloat16", which halves the
            bytes and rounds each gradient to 8 significant bits.
        start_timeout: Without ``cluster``: seconds within which all workers must have joined; by default 300.
        heartbeat_timeout: Without ``cluster``: seconds without a heartbeat after which a worker counts as
            lost; by default 30. The value must be the same in all processes.

    Returns:
        The strategy, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: An argument does not have this form.

    Example:
        >>> multi_worker_mirrored(communication="ring").communication
        'ring'
    """
    return MultiWorkerMirrored(**locals())
