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
_ADDRESS = re.compile(r"local|auto|(ray://)?(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}", re.ASCII)


def resources(name: str, value: Any) -> dict[str, float]:
    """Return what each worker needs, as numbers by the names that Ray gives to resources."""
    if value is None:
        return {"CPU": 1}
    if not isinstance(value, Mapping) or not value:
        raise ArgumentError(
            f"`{name}` must map names of Ray resources to amounts.",
            received=show(value),
            fix=f'Pass {name}={{"CPU": 2}}, for example, or {{"CPU": 1, "GPU": 1}}.',
        )
    for key, amount in value.items():
        if not isinstance(key, str) or not key:
            raise ArgumentError(
                f"Each name in `{name}` must be the name of a Ray resource.",
                received=show(key),
                fix='Write it like "CPU", "GPU", "memory", or as your nodes name it.',
            )
        number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not number or not 0 <= amount < math.inf or (amount > 1 and amount != int(amount)):
            raise ArgumentError(
                f"`{name}` must give {key} a whole number, or a part of 1.",
                received=show(amount),
                fix=f'Pass {name}={{"{key}": 1}}, for example.',
            )
    if not any(value.values()):
        raise ArgumentError(
            f"`{name}` must have an amount above 0: Ray finds no place for a worker that needs nothing.",
            received=show(dict(value)),
            fix=f'Pass {name}={{"CPU": 1}}, for example.',
        )
    return {key: int(amount) if amount == int(amount) else amount for key, amount in value.items()}


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
