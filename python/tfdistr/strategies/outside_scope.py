"""Models made outside of ``strategy.scope()``, which each worker would train alone.

Keras trains such a model without any call of the strategy. But ``compile()`` creates a variable, and a
``tf.variable_creator_scope`` sees it. An attribute of the model then hides the method with which ``fit()``
begins, so that nothing in Keras is patched.
"""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError

_MAKER = "make_train_function"
_FIX = (
    "Build and compile the model inside `with strategy.scope():`. A model that this worker is to train alone "
    'needs the scope of tf.distribute.OneDeviceStrategy("/cpu:0").'
)

#: The last strategy for several workers that is in use.
_in_use: list[weakref.ref[tf.distribute.Strategy]] = []
_guarded: weakref.WeakSet[keras.Model] = weakref.WeakSet()


def guard_scope(strategy: object) -> None:
    """Refuse to train models that are compiled from now on without a scope, while ``strategy`` is in use."""
    if not _in_use:
        tf_internals.on_new_variable(_guard_compiled)
    _in_use[:] = [weakref.ref(strategy)]


def _guard_compiled() -> None:
    found = tf_internals.compiling()
    if found is None or tf_internals.strategy_of_model(found[0]) is not None or found[0] in _guarded:
        return
    model, line = found
    _guarded.add(model)
    setattr(model, _MAKER, functools.partial(_refuse_training, weakref.ref(model), line))


def _refuse_training(model: weakref.ref[keras.Model], line: str | None, *args: object) -> object:
    strategy, kept = _in_use[0](), model()
    if strategy is not None and not strategy.left:
        raise _outside(kept, strategy, f"compiled at {line}" if line else "compiled")
    _guarded.discard(kept)
    delattr(kept, _MAKER)
    return getattr(kept, _MAKER)(*args)


def check_made_inside(model: keras.Model, strategy: object, *, training: bool) -> None:
    """Refuse a model for a call under ``strategy`` if it, or a part of it, was made without its scope."""
    if tf_internals.strategy_of_model(model) is None and training:
        raise _outside(model, strategy, "made")
    strangers = tf_internals.strangers(model, strategy, training=training)
    if strangers:
        raise ArgumentError(
            f"Cannot use the model {model.name!r} on several workers: parts of it were made outside of "
            "strategy.scope().",
            received=f"{', '.join(strangers)} without the scope",
            fix="Call compile() inside `with strategy.scope():`, and make its optimizer and metrics there.",
        )


def _outside(model: Any, strategy: Any, made: str) -> ArgumentError:
    return ArgumentError(
        f"Cannot train the model {model.name!r} on {strategy.num_workers} workers: it was made outside of "
        "strategy.scope(), so each worker would train it alone.",
        received=f"a model that was {made} without the scope, on worker {strategy.worker_index}",
        fix=_FIX,
    )


def trained_alone() -> ArgumentError | None:
    """Return the error for models that Keras trained without a strategy; None if there are none alive."""
    if "keras" not in sys.modules:
        return None
    models = [found for found in gc.get_objects() if issubclass(type(found), keras.Model)]
    alone = [m for m in models if tf_internals.strategy_of_model(m) is None and tf_internals.was_trained(m)]
    if not alone:
        return None
    return ArgumentError(
        "Each worker has trained alone: the strategy was never used.",
        received=f"a model {alone[0].name!r} that was trained outside of strategy.scope()",
        fix=_FIX,
    )
