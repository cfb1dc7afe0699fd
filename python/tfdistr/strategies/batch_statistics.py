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
    """The layers that normalize with the rows of one worker."""

    def __init__(self, differences: list[str]) -> None:
        self._differences = differences
        self._noted: weakref.WeakKeyDictionary[keras.Model, weakref.WeakSet[keras.Layer]] = (
            weakref.WeakKeyDictionary()
        )

    @contextlib.contextmanager
    def noted(self, model: keras.Model) -> Iterator[None]:
        """Note such layers in a step of a model within the context, which may be a trace, and warn once."""
        found: list[keras.Layer] = []
        with tf_internals.observed_batch_statistics(model, found.append):
            yield
        known = {layer for layers in self._noted.values() for layer in layers}
        new = list(dict.fromkeys(layer.name for layer in found if layer not in known))
        self._noted.setdefault(model, weakref.WeakSet()).update(found)
        if found:
            self.begin(model)
        if new:
            log.warning(
                "%s: each worker normalizes with its own rows, so the result is not that of one worker. "
                "BatchNormalization(synchronized=True) normalizes with the rows of all.",
                ", ".join(new),
            )

    def begin(self, model: keras.Model) -> None:
        """Add what is noted of a model to the differences: a call need not trace its step again."""
        noted = self._noted.get(model, ())
        names = [layer.name for layer in tf_internals.all_layers(model) if layer in noted and layer.trainable]
        difference = f"each worker normalizes with its own rows in {', '.join(names)}"
        if names and difference not in self._differences:
            self._differences.append(difference)
