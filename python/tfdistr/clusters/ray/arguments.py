"""The forms of the arguments of ``ray_cluster()``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from tfdistr.errors import ArgumentError
from tfdistr.schemas import show

#: How Ray spreads the workers over its nodes.
STRATEGIES = ("SPREAD", "PACK", "STRICT_SPREAD", "STRICT_PACK")
# The resources that all engines have, and their arguments.
_SHARED = {"CPU": ("cores", "cores_per_worker"), "GPU": ("GPUs", "gpus_per_worker")}
_ADDRESS = re.compile(r"local|auto|(ray://)?(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}", re.ASCII)


def resources(name: str, value: Any) -> dict[str, float]:
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


def gpus(name: str, value: Any) -> float | None:
    """Return the number of GPUs of a worker, if it is a whole number, or a part of 1 that workers share."""
    if value is None:
        return None
    if not _is_amount(value):
        raise ArgumentError(
            f"`{name}` must be a whole number, or a part of 1.", received=show(value), fix=f"Pass {name}=1."
        )
    return int(value) if value == int(value) else float(value)


def _is_amount(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 <= value < math.inf and (value <= 1 or value == int(value))


def address(name: str, value: Any) -> str | None:
    """Return ``value``, if it is None or the address of a Ray cluster."""
    if value is None:
        return None
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        raise ArgumentError(
            f'`{name}` must be the address of a Ray cluster, "auto" or "local".',
            received=show(value),
            fix=f'Pass {name}="10.0.0.1:6379", for example; "auto" is the Ray of this machine.',
        )
    return value


def runtime_env(name: str, value: Any) -> dict[str, Any] | None:
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
