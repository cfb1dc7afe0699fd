"""XLA on several workers or devices: it compiles what lies between their exchanges.

XLA cannot compile a step that contains exchanges. So Keras compiles nothing, and the operations of each step
are marked for TensorFlow's auto-clustering: TensorFlow compiles each largest group of marked operations that
XLA can compile, and computes the others as before. (``tf.config.optimizer.set_jit()`` would mark the whole
process, and on CPUs it needs a flag that TensorFlow reads once, with its first graph.)
"""

from __future__ import annotations

import contextlib
import logging
from typing import Any

import keras
import tensorflow as tf

log = logging.getLogger("tfdistr")


class _BetweenExchanges:
    """The value of ``model.jit_compile`` while only a strategy compiles; for Keras it is as False."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "between the exchanges"


_BETWEEN = _BetweenExchanges()


def compile_between_exchanges(model: keras.Model, where: str, *, is_chief: bool = True) -> None:
    """Let XLA compile the steps of a model with ``jit_compile=True`` only between exchanges, and log it."""
    if model.jit_compile:
        if is_chief:
            log.info("XLA compiles what lies between the exchanges of %s (jit_compile=True).", where)
        model.jit_compile = _BETWEEN


def marked(model: keras.Model | None) -> contextlib.AbstractContextManager[Any]:
    """Mark the operations that are traced within the context for XLA, if the model asks for it."""
    if model is None or model.jit_compile is not _BETWEEN or tf.executing_eagerly():
        return contextlib.nullcontext()
    scope: contextlib.AbstractContextManager[Any] = tf.xla.experimental.jit_scope()
    return scope


def compiled_by_xla(model: keras.Model) -> str:
    """Describe what XLA compiles of the steps of a model."""
    if model.jit_compile is _BETWEEN:
        return "between exchanges"
    return "whole steps" if model.jit_compile else "nothing"


def without_xla(model: keras.Model) -> None:
    """Make a model train without XLA on virtual workers, and warn of it.

    Their functions have the same graphs on any number of workers. But TensorFlow compiles a group for a
    second shape only when this shape has come twice, and a worker with fewer shares counts more slowly.
    """
    if model.jit_compile:
        log.warning(
            "jit_compile=True is ignored with virtual workers: when XLA compiles, and so how it rounds, "
            "would depend on the number of workers."
        )
        model.jit_compile = False
