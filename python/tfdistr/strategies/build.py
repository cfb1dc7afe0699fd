"""Creates the weights of a model before it trains."""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import keras
import tensorflow as tf

from tfdistr import _private
from tfdistr.data.element_shapes import batch_of_zeros, has_known_shapes
from tfdistr.data.pipeline import WorkerData


def build(
    model: keras.Model,
    data: tf.data.Dataset | WorkerData,
    *,
    optimizer: bool = True,
    training: bool = True,
) -> None:
    """Create the model's weights and metrics before its step is traced, as Keras does under a strategy.

    Args:
        model: The model.
        data: Batches for its step.
        optimizer: Whether to create the variables of its optimizer, too.
        training: Whether the model will train; else it will be evaluated. A model without ``call()`` is built
            by its step.
    """
    if has_known_shapes(data.element_spec):
        batch = batch_of_zeros(data.element_spec)
    else:
        batch = data.example if isinstance(data, WorkerData) else next(iter(data))
    if not has_call(model):
        build_by_step(model, batch, training=training, optimizers=optimizer)
        return
    without = contextlib.nullcontext() if optimizer else _private.overridden(model, "optimizer", None)
    with without, model.distribute_strategy.scope():
        _private.build(model, batch)


def has_call(model: keras.Model) -> bool:
    """Return whether a model can be called; else only its parts can be, which its steps call."""
    return type(model).call is not keras.Model.call


def let_keras_build(model: keras.Model) -> None:
    """Let Keras's own ``fit`` and ``evaluate`` build a model without ``call()`` by its step."""
    if has_call(model):
        return

    def by_step(batch: Any) -> None:
        call = _private.keras_call()
        build_by_step(model, batch, training=call is None or call.method == "fit")

    _private.build_instead(model, by_step)


def build_by_step(model: keras.Model, batch: Any, *, training: bool = True, optimizers: bool = True) -> None:
    """Build a model by a trace of its ``train_step`` or ``test_step`` that changes nothing.

    Each optimizer is built for the variables that the step passes to it, as in a process without a strategy.
    """
    name = "train_step" if training else "test_step"
    if getattr(type(model), name) is getattr(keras.Model, name):
        return  # Keras's error says that this step needs call()
    found = _optimizers(model)
    done = not optimizers or all(optimizer.built for optimizer in found)
    if done and all(layer.built for layer in _private.all_layers(model)):
        model.built = True
        return
    trained: dict[int, list[Any]] = {}
    known = len(model.variables)
    try:
        _trace(model, name, batch, trained)
    except Exception:
        if len(model.variables) == known:
            raise
        # A tape has no gradients of weights that its own trace has created. Now they exist.
        _trace(model, name, batch, trained)
    with model.distribute_strategy.scope():
        for optimizer in found:
            if optimizers and not optimizer.built and id(optimizer) in trained:
                optimizer.build(trained[id(optimizer)])
    model.built = True


def _optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return the optimizers that are attributes of a model, or in a list or dictionary that is one."""
    found: dict[int, keras.optimizers.Optimizer] = {}
    for value in vars(model).values():
        held = value.values() if isinstance(value, dict) else value
        parts = held if isinstance(value, list | tuple | dict) else [value]
        found |= {id(part): part for part in parts if isinstance(part, keras.optimizers.Optimizer)}
    return list(found.values())


def _replica_context(strategy: tf.distribute.Strategy) -> tf.distribute.ReplicaContext:
    own = getattr(strategy.extended, "replica_context", None)  # a worker's replica has the worker's number
    return own() if own else tf.distribute.ReplicaContext(strategy, replica_id_in_sync_group=0)


def _trace(model: keras.Model, name: str, batch: Any, trained: dict[int, list[Any]]) -> None:
    """Trace a step, and note the variables that it passes to each optimizer, by the optimizer's id."""
    step = getattr(model, name)
    plain = _private.keras_step(step, inline=True)  # not the function that tf.function has compiled
    step = plain[1] if plain else step
    strategy = model.distribute_strategy

    def note(optimizer: Any, grads: Any, trainable_variables: Any = None) -> None:
        variables = model.trainable_variables if trainable_variables is None else trainable_variables
        trained[id(optimizer)] = list(variables)

    def in_replica() -> Any:
        with _replica_context(strategy):
            return step(batch)

    with contextlib.ExitStack() as stack:
        stack.enter_context(strategy.scope())
        for optimizer in _optimizers(model):
            stack.enter_context(_private.overridden(optimizer, "apply", functools.partial(note, optimizer)))
        _private.trace_without_effect(in_replica)
