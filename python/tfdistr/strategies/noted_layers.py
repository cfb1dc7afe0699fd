"""The layers that make the result of several workers another one than that of one worker."""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Iterator, Mapping

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.strategies.virtual.operations import random_operations
from tfdistr.utils.warn import NOTE

log = logging.getLogger("tfdistr")

#: What each worker does in the steps of a model; the names of layers follow.
DRAWS = "each worker draws its own random numbers in"
NORMALIZES = "each worker normalizes with its own rows in"
#: The same for operations that draw with TensorFlow's seeds.
SAME = "all workers draw the same random numbers in"

_NOT_OF_ONE = "Random numbers are not those of one worker"
_MESSAGES: dict[str, tuple[str, Mapping[str, object]]] = {
    DRAWS: (
        f"{_NOT_OF_ONE}: {DRAWS} {{}}. virtual_workers makes them independent of the number of workers.",
        NOTE,
    ),
    SAME: (f"{_NOT_OF_ONE}: {SAME} {{}}. Draw with a keras.random.SeedGenerator.", NOTE),
    NORMALIZES: (
        "{}: each worker normalizes with its own rows, so the result is not that of one worker. "
        "BatchNormalization(synchronized=True) normalizes with the rows of all.",
        {},
    ),
}


class NotedLayers:
    """The layers that draw random numbers in a step, or normalize with the rows of one worker.

    Args:
        differences: Gets a sentence for each kind of such layers.
    """

    def __init__(self, differences: list[str]) -> None:
        self._differences = differences
        self._noted: weakref.WeakKeyDictionary[keras.Model, dict[str, weakref.WeakSet[keras.Layer]]] = (
            weakref.WeakKeyDictionary()
        )
        self._operations: weakref.WeakKeyDictionary[keras.Model, dict[str, None]] = (
            weakref.WeakKeyDictionary()
        )

    @contextlib.contextmanager
    def noted(self, model: keras.Model) -> Iterator[None]:
        """Note such layers in a step of a model within the context, which may be a trace, and say so once."""
        found: dict[str, list[keras.Layer]] = {DRAWS: [], NORMALIZES: []}
        with (
            tf_internals.observed_draws(model, found[DRAWS].append),
            tf_internals.observed_batch_statistics(model, found[NORMALIZES].append),
        ):
            yield
        operations = [] if tf.executing_eagerly() else random_operations(tf.compat.v1.get_default_graph())
        listed = dict.fromkeys(f"{kind} ({name})" for kind, name in operations)
        new = {what: self._new(what, layers) for what, layers in found.items()}
        new[SAME] = [name for name in listed if name not in self._operations.get(model, ())]
        for what, layers in found.items():
            self._noted.setdefault(model, {}).setdefault(what, weakref.WeakSet()).update(layers)
        self._operations.setdefault(model, {}).update(listed)
        if listed or any(found.values()):
            self.begin(model)
        for what, names in new.items():
            if names:
                message, kind = _MESSAGES[what]
                log.warning(message.format(", ".join(names)), extra=kind)

    def _new(self, what: str, layers: list[keras.Layer]) -> list[str]:
        """Return the names of layers that have not been noted."""
        known = {layer for noted in self._noted.values() for layer in noted.get(what, ())}
        return list(dict.fromkeys(layer.name for layer in layers if layer not in known))

    def begin(self, model: keras.Model) -> None:
        """Add what is noted of a model to the differences: a call need not trace its step again."""
        names = {SAME: list(self._operations.get(model, ()))}
        for what, noted in self._noted.get(model, {}).items():
            layers = [layer for layer in (model, *tf_internals.all_layers(model)) if layer in noted]
            names[what] = [layer.name for layer in layers if layer.trainable or what != NORMALIZES]
        for what, listed in names.items():
            difference = f"{what} {', '.join(listed)}"
            if listed and difference not in self._differences:
                self._differences.append(difference)
