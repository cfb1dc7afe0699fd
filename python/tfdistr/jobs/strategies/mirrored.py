"""The devices of one process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import attrs

from tfdistr.jobs.strategies.base import Strategy
from tfdistr.utils.interrupts import import_tensorflow


@attrs.frozen(kw_only=True)
class OneDevice(Strategy):
    """One device of this process. `one_device` describes the options."""

    name: ClassVar[str] = "one_device"
    maker: ClassVar[tuple[str, str]] = ("strategies.mirrored", "OneDeviceStrategy")
    max_workers: ClassVar[int | None] = 1

    device: Any = None  # OneDeviceStrategy checks it, as it does for custom loops


@attrs.frozen(kw_only=True)
class Mirrored(Strategy):
    """Several devices of one process. `mirrored` describes the options."""

    name: ClassVar[str] = "mirrored"
    maker: ClassVar[tuple[str, str]] = ("strategies.mirrored", "MirroredStrategy")
    max_workers: ClassVar[int | None] = 1

    devices: object = None  # MirroredStrategy checks it

    def _count_shares(self, workers: int) -> int:
        if self.devices is not None:
            return max(1, len(self.devices)) if isinstance(self.devices, list | tuple) else 1
        import_tensorflow()
        import tensorflow as tf

        return max(1, len(tf.config.list_physical_devices("GPU")))


def mirrored(*, devices: Sequence[str] | None = None) -> Mirrored:
    """Choose several devices of one process, each with a copy of the model.

    Args:
        devices: Names such as ``["gpu:0", "gpu:1"]``; by default all GPUs that the process sees.

    Returns:
        The strategy, to be passed to `distributed_fit`.

    Example:
        >>> mirrored(devices=["cpu:0"]).name
        'mirrored'
    """
    return Mirrored(devices=devices)


def one_device(*, device: str | None = None) -> OneDevice:
    """Choose one device of this process.

    Args:
        device: Its name, such as "gpu:0"; by default the first GPU, or the CPU.

    Returns:
        The strategy, to be passed to `distributed_fit`.

    Example:
        >>> one_device(device="cpu:0").name
        'one_device'
    """
    return OneDevice(device=device)
