"""Virtual workers: training whose result is bitwise identical on any number of workers.

Each global batch has a fixed number of shares, one for each virtual worker. A worker computes the steps of
its virtual workers, each with one thread. Sums over the shares have a fixed order. So the result is a
function of the seed, the data and the number of virtual workers, and not of the machines.

Source: EasyScale (Li et al., SC'23) does this for PyTorch on GPUs.
"""

from __future__ import annotations

from tfdistr.errors import ArgumentError


def check_virtual_workers(
    count: int,
    *,
    workers: int = 1,
    batch_size: int | None = None,
    communication: str = "auto",
    devices: int = 1,
) -> None:
    """Refuse numbers of virtual workers, and settings, whose results would not be bitwise identical."""
    if count < workers:
        raise ArgumentError(
            "`virtual_workers` must be at least the number of workers: each worker computes one or more.",
            received=f"virtual_workers={count}, {workers} workers",
            fix=f"Pass virtual_workers={workers} or more, the same number in all runs to be compared.",
        )
    if batch_size is not None and count > batch_size:
        raise ArgumentError(
            "`virtual_workers` must be at most the examples of a global batch: each gets a share of it.",
            received=f"virtual_workers={count}, batch_size={batch_size}",
            fix="Pass fewer virtual workers, or a larger batch.",
        )
    if communication == "nccl":
        raise ArgumentError(
            "Virtual workers need sums of gradients in a fixed order, which NCCL does not guarantee.",
            received=f'virtual_workers={count}, communication="nccl"',
            fix='Pass communication="auto", "mpi" or "ring".',
        )
    if devices != 1:
        raise ArgumentError(
            "Virtual workers need workers with one device each.",
            received=f"a worker with {devices} devices",
            fix="Start one process for each device.",
        )
