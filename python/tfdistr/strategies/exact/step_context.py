"""The context of a step, or a part of one, while it is traced or runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf


@dataclass(frozen=True)
class StepContext:
    """The context of a step. ``OneReplica.within()`` changes it temporarily.

    Attributes:
        reported_replicas: The number of replicas that Keras sees; None for the real number.
        share: The virtual worker (``Share``) whose step is being traced, or ``NoPeers``.
        present: 0 in a step for which this worker has no examples, so that it adds nothing to a sum; else 1.
            None if every worker has examples.
        known_rows: The number of rows of the global batch, a float32 scalar; None to ask the peers.
        never_empty: Whether every worker has at least one row.
        sums: Sums over the workers of variables, by the id of the variable: no peer is asked for them.
        local_only: Whether only this worker runs this: other variables have this worker's values.
    """

    reported_replicas: int | None = None
    share: Any = None
    present: tf.Tensor | None = None
    known_rows: tf.Tensor | None = None
    never_empty: bool = False
    sums: Mapping[int, tf.Tensor] = field(default_factory=dict)
    local_only: bool = False
