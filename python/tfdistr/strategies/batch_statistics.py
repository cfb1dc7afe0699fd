"""The warning about layers that normalize with the rows of one worker only."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator

import keras

from tfdistr import tf_internals

log = logging.getLogger("tfdistr")


class BatchStatistics:
    """The layers that normalize with the rows of one worker, each noted once.

    Args:
        differences: Gets why the result is not that of one worker.
    """

    def __init__(self, differences: list[str]) -> None:
        self._differences = differences
        self._noted: weakref.WeakSet[keras.Layer] = weakref.WeakSet()

    @contextlib.contextmanager
    def noted(self, model: keras.Model) -> Iterator[None]:
        """Warn after a step of a model within the context, which may be a trace, of such layers."""
        found: list[keras.Layer] = []
        with tf_internals.observed_batch_statistics(model, found.append):
            yield
        new = {layer.name: layer for layer in found if layer not in self._noted}
        self._noted.update(new.values())
        if found:
            names = ", ".join(dict.fromkeys(layer.name for layer in found))
            self._differences.append(f"each worker normalizes with its own rows in {names}")
        if new:
            log.warning(
                "%s: each worker normalizes with its own rows, so the result is not that of one worker. "
                "BatchNormalization(synchronized=True) normalizes with the rows of all.",
                ", ".join(new),
            )
