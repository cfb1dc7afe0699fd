"""Builds the optimizers that a ``train_step`` applies, before the step is traced.

Keras builds ``model.optimizer`` before the first step, and other optimizers in it. Workers cannot create
variables in a step: the initial values are the chief's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdistr import _private
from tfdistr.strategies.replica import NoPeers, OneReplica
from tfdistr.strategies.replica_step import ReplicaStep


def build_step_optimizers(extended: OneReplica, fn: Callable[..., Any], data: Any) -> None:
    """Build the optimizers that a ``train_step`` applies and that are not built, if the step is being traced.

    The step is traced once more, without running it, to find the variables that they train. (In eager mode
    the step can create variables.)

    Args:
        extended: Runs the replica.
        fn: The ``train_step`` or ``test_step`` of a model.
        data: A batch; only its types matter.
    """
    found = None if tf.executing_eagerly() else _private.keras_step(fn, inline=True)
    if found is None or all(optimizer.built for optimizer in _private.optimizers_of(found[0])):
        return
    model, train_step = found
    trained: dict[int, tuple[keras.optimizers.Optimizer, Any]] = {}

    def note(optimizer: Any, gradients: Sequence[Any], variables: Any, own: _private.Apply) -> None:
        if variables is not None:
            trained.setdefault(id(optimizer), (optimizer, list(variables)))

    def step(batch: Any) -> None:
        with (
            extended.without_peers(),
            ReplicaStep(NoPeers(), None, 0, 1).entered(),
            _private.optimizer_hooks(model, lambda _, loss: loss, note),
        ):
            train_step(batch)

    spec = tf.nest.map_structure(lambda part: None if part is None else tf.type_spec_from_value(part), data)
    with keras.StatelessScope(initialize_variables=False):
        tf.function(step, autograph=False).get_concrete_function(spec)
    with tf.init_scope(), extended.strategy.scope():
        with keras.StatelessScope():  # its end initializes the variables of layers that the step has built
            pass
        for optimizer, variables in trained.values():
            if not optimizer.built:
                optimizer.build(variables)
