"""XLA, which cannot compile what replicas exchange."""

from __future__ import annotations

import logging

import keras

log = logging.getLogger("tfdistr")


def turn_off(model: keras.Model, where: str) -> None:
    """Make a model train without XLA, and say so.

    Args:
        model: A compiled model.
        where: Where XLA cannot be used, such as "on several workers".
    """
    if model.jit_compile:
        log.warning("jit_compile=True is ignored %s: XLA cannot compile what they exchange.", where)
        model.jit_compile = False
