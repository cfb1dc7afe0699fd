"""The strategy that a Keras model and its parts were made for."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from tfdistr.tf_internals.keras_loop import given_metrics, innermost
from tfdistr.tf_internals.keras_optimizers import optimizers_of
from tfdistr.tf_internals.keras_step import overridden

_COMPILE = inspect.unwrap(keras.Model.compile).__code__
_LIBRARIES = frozenset(("contextlib", "keras", "rpytools", "tensorflow", "tfdistr"))


def strategy_of_model(model: keras.Model) -> tf.distribute.Strategy | None:
    """Return the strategy in whose scope a model was made; None without a scope.

    ``Model.distribute_strategy`` falls back to the scope of the call.
    """
    strategy: tf.distribute.Strategy | None = model._distribute_strategy
    return strategy


def compiling() -> tuple[keras.Model, str | None] | None:
    """Return the model whose ``compile()`` runs, and the user's line that calls it, if that is Python.

    Keras has no hook for a call of ``compile()``.
    """
    frame = innermost([_COMPILE])
    if frame is None:
        return None
    model, caller = frame.f_locals["self"], frame.f_back
    while caller is not None and caller.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        caller = caller.f_back
    return model, f"{caller.f_code.co_filename}:{caller.f_lineno}" if caller else None


@contextlib.contextmanager
def auto_means_gpus() -> Iterator[None]:
    """Let ``jit_compile="auto"`` choose as without a strategy, within the context: XLA on GPUs.

    Keras's ``compile()`` keeps no "auto", but what ``Model._resolve_auto_jit_compile`` makes of it, which is
    False for a model of any strategy.
    """
    resolve = keras.Model._resolve_auto_jit_compile

    def as_without_strategy(model: keras.Model) -> bool:
        with overridden(model, "_distribute_strategy", None):
            return bool(resolve(model))

    with overridden(keras.Model, "_resolve_auto_jit_compile", as_without_strategy):
        yield


def was_trained(model: keras.Model) -> bool:
    """Return whether Keras has made the training step of a model in this process."""
    return model.train_function is not None


def strangers(model: keras.Model, strategy: tf.distribute.Strategy, *, training: bool) -> list[str]:
    """Return the parts of a model, or its metrics, with variables not made in the scope of ``strategy``."""

    def strange(part: Any) -> bool:
        values = [variable._value for variable in part.variables]  # `value` may create it
        of = [getattr(v, "_distribute_strategy", None) for v in values if isinstance(v, tf.Variable)]
        return any(made_in is not strategy for made_in in of)

    # Those of compile() are among `model.metrics` only when the model is built.
    metrics = [m for m in (*model.metrics, *given_metrics(model)) if isinstance(m, keras.metrics.Metric)]
    unique = {id(metric): metric for metric in metrics}.values()
    found = [f"the metric {metric.name!r}" for metric in unique if strange(metric)]
    if training:
        found += [f"the optimizer {type(o).__name__}" for o in optimizers_of(model) if strange(o)]
    return found


def on_new_variable(called: Callable[[], None]) -> None:
    """Call a function whenever this thread creates a variable, from now on."""

    def creator(next_creator: Callable[..., object], **kwargs: object) -> object:
        called()
        return next_creator(**kwargs)

    scope = tf.variable_creator_scope(creator)
    scope.__enter__()
    _ENTERED.append(scope)  # it would be left if it were collected


_ENTERED: list[object] = []
