"""The options for the exchange of tensors: tfdistr's arguments, or TensorFlow's ``CommunicationOptions``."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, NamedTuple

import tensorflow as tf

from tfdistr.collectives.interface import BYTES_PER_PACK
from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import COMMUNICATION, as_number, check_choice, check_int
from tfdistr.utils.describe import describe

# The public class makes objects of another class, which has no public name.
_Options = type(tf.distribute.experimental.CommunicationOptions())


class Exchange(NamedTuple):
    """The checked arguments."""

    communication: str
    bytes_per_pack: int
    timeout_seconds: float | None


def check_exchange(communication_options: Any, communication: Any, bytes_per_pack: Any) -> Exchange:
    """Check the arguments for the exchange of tensors between workers."""
    if communication_options is None:
        if isinstance(communication, Enum):  # tf.distribute.experimental.CommunicationImplementation
            communication = str(communication.value).lower()
        asked = "auto" if communication is None else communication
        name = check_choice("communication", asked, COMMUNICATION)
        size = BYTES_PER_PACK if bytes_per_pack is None else bytes_per_pack
        return Exchange(name, check_int("bytes_per_pack", size, minimum=0), None)
    _check_options(communication_options, communication=communication, bytes_per_pack=bytes_per_pack)
    size = check_int("bytes_per_pack", communication_options.bytes_per_pack, minimum=0)
    return Exchange(
        communication_options.implementation.value.lower(),
        size or BYTES_PER_PACK,
        _check_timeout(communication_options.timeout_seconds),
    )


def check_resolver(cluster_resolver: object) -> None:
    """Check the argument ``cluster_resolver``."""
    if cluster_resolver is None:
        return
    if not isinstance(cluster_resolver, tf.distribute.cluster_resolver.ClusterResolver):
        given = getattr(cluster_resolver, "value", cluster_resolver)  # of a CommunicationImplementation
        name = given.lower() if isinstance(given, str) else ""
        raise ArgumentError(
            "`cluster_resolver` (the first argument) must be a "
            "tf.distribute.cluster_resolver.ClusterResolver.",
            received=describe(cluster_resolver),
            fix=f'Pass communication="{name if name in COMMUNICATION else "auto"}" by its name.'
            if name
            else "Leave it out: TF_CONFIG, mpiexec or srun describes the cluster.",
        )


def _check_options(options: object, **others: object) -> None:
    if not isinstance(options, _Options):
        raise ArgumentError(
            "`communication_options` must be a tf.distribute.experimental.CommunicationOptions.",
            received=describe(options),
            fix='Pass tf.distribute.experimental.CommunicationOptions(implementation="NCCL"), for example.',
        )
    given = [f"{name}={value!r}" for name, value in others.items() if value is not None]
    if given:
        raise ArgumentError(
            "`communication` and `bytes_per_pack` cannot be combined with `communication_options`.",
            received=f"{', '.join(given)} beside communication_options",
            fix="Pass CommunicationOptions(implementation=, bytes_per_pack=) alone, or leave it out.",
        )


def _check_timeout(value: object) -> float | None:
    """Return the limit in seconds; None for no limit, which is 0 in TensorFlow."""
    if value is None:
        return None
    number = as_number(value)
    if not 0 <= number < math.inf:
        raise ArgumentError(
            "`timeout_seconds` of `communication_options` must be a number of seconds from 0, or None.",
            received=repr(value),
            fix="Pass timeout_seconds=600.0, for example; 0 and None mean no limit.",
        )
    return number or None
