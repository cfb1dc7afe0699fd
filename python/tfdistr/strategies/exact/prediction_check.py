"""A check on the first batch that the predictions for rows do not depend on the other rows of the batch."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.strategies.exact.exchange import NoPeers, ReplicaStep
from tfdistr.strategies.exact.loss_weighting import count_examples
from tfdistr.strategies.exact.replica import OneReplica
from tfdistr.strategies.exact.rows_of_all import concatenated, rows_between
from tfdistr.strategies.exact.step_probe import StepProbe
from tfdistr.utils.warn import ABOUT_BATCH

log = logging.getLogger("tfdistr")

_ROWS = 16
_TOLERANCE = 1e-4


def check_predictions(extended: OneReplica, model: keras.Model, look: Callable[[], object]) -> None:
    """Warn if outputs of the model's own ``predict_step`` depend on other rows; the chief looks."""
    if not (extended.is_chief and tf_internals.overrides(model, "predict_step")):
        return
    try:
        batch = look()
        alike = batch is None or _alike(extended, model, batch)
    except Exception:  # the step itself will raise it, with its full traceback
        log.debug("The check of the first batch failed", exc_info=True)
        return
    if not alike:
        log.warning(
            "The predictions of several workers are not those of one worker: predict_step() of %s uses "
            "several rows of a batch at once, and a worker has only its own. Gather the rows of all workers "
            "there with tfdistr.gather(), or predict on one worker.",
            type(model).__name__, extra=ABOUT_BATCH,
        )  # fmt: skip


def _alike(extended: OneReplica, model: keras.Model, batch: object) -> bool:
    """Return whether the outputs for two halves of a batch are the outputs for the batch."""
    half = min(_ROWS, int(count_examples(batch))) // 2
    if half == 0:
        return True
    parts = [rows_between(batch, 0, half), rows_between(batch, half, half)]
    replica = ReplicaStep(NoPeers(), None, 0, 1)

    def outputs(rows: object) -> Any:
        with tf_internals.alike_for_all_rows(tf_internals.Draws()):
            return model.predict_step(rows)

    probe = StepProbe(extended, model, "test")
    with (
        tf_internals.undisturbed_random_numbers(),
        probe.prepared(perturbed=False),
        extended.without_peers(),
        replica.entered(),
    ):
        whole = outputs(concatenated(parts))
        each = concatenated([outputs(part) for part in parts])
    pairs = zip(tf.nest.flatten(whole), tf.nest.flatten(each), strict=True)
    return replica.has_communicated or all(
        value.shape == other.shape and np.allclose(value, other, _TOLERANCE, _TOLERANCE)
        for value, other in pairs
    )
