"""What happens around a call of Keras's ``fit``, ``evaluate`` or ``predict`` under the strategy.

When Keras hands its dataset to the strategy, the call begins: the model is prepared for many workers. When
Keras is about to make its step, the call is ready: the workers compare what they are going to do, and their
callbacks are arranged. (Keras calls ``model.make_train_function()`` and its kin on the model object, where an
attribute of this one object goes before the method of the class: nothing in Keras is patched.)
"""

from __future__ import annotations

import functools
import logging
import weakref
from typing import Any

import keras
import tensorflow as tf

from tfdistr import _private
from tfdistr.communication.agreement import agree, describe_call, describe_model, versions
from tfdistr.strategies.callbacks import coordinate, keep_quiet, notes
from tfdistr.strategies.replica import OneReplica

log = logging.getLogger("tfdistr")

_MAKERS = {
    "fit": "make_train_function",
    "evaluate": "make_test_function",
    "predict": "make_predict_function",
}
_SAVERS = ("save", "save_weights", "export")
# Seeds of the workers' generators are this far apart: a prime that no one adds to a seed of his own.
_BETWEEN_SEEDS = 1_000_003


class KerasCalls:
    """Prepares models for many workers as Keras's methods are called on them.

    Args:
        extended: What runs this worker's replica.
    """

    def __init__(self, extended: OneReplica) -> None:
        self._extended = extended
        self._prepared: weakref.WeakSet[keras.Model] = weakref.WeakSet()

    def dataset_given(self, dataset: tf.data.Dataset) -> None:
        """Begin the call of fit, evaluate or predict that asks for ``dataset`` to be split, if one does."""
        call = _private.keras_call()
        if call is None or "epoch_iterator" in call.variables:  # validation data of a fit that has begun
            return
        model = call.model
        self.prepare(model, call.variables["callbacks"])
        maker = _MAKERS[call.method]
        vars(model).pop(maker, None)  # of a call that failed before it was ready
        setattr(model, maker, functools.partial(self._make, model, maker, dataset))

    def _make(self, model: keras.Model, maker: str, dataset: tf.data.Dataset, *args: Any) -> Any:
        delattr(model, maker)
        call = _private.keras_call()
        if call is not None:  # else a call that failed has left this behind, for train_on_batch() to find
            fields = describe_call(call)
            self.ready(model, call.callbacks, dataset, fields, training=call.method == "fit")
        return getattr(model, maker)(*args)

    def prepare(self, model: keras.Model, callbacks: Any) -> None:
        """Begin: before the model is built, and before the callbacks get to know it."""
        if model.jit_compile:
            log.warning(
                "jit_compile=True is ignored on several workers: XLA cannot compile what they exchange."
            )
            model.jit_compile = False
        if not self._extended.is_chief:
            keep_quiet(callbacks)

    def ready(
        self,
        model: keras.Model,
        callbacks: keras.callbacks.CallbackList,
        dataset: tf.data.Dataset,
        fields: dict[str, Any],
        training: bool,
    ) -> None:
        """Go on, with a model that is built: compare the workers' ``fields``, arrange the callbacks.

        Raises:
            JobMismatchError: The workers are about to do different things.
        """
        extended = self._extended
        assert extended.collectives is not None
        described = versions() | fields | describe_model(model, dataset)
        described["learning rates of new optimizers"] = " ".join(extended.given_rates)
        extended.given_rates.clear()  # what was compared does not count any more
        peers = agree(extended.collectives, described, notes(callbacks))
        coordinate(callbacks, peers, extended, training)
        if training:
            extended.watch.begin()
        if model not in self._prepared:
            self._prepared.add(model)
            self._separate_random_numbers(model)
            self._save_on_chief(model)
            _note_batch_normalization(model)

    def _separate_random_numbers(self, model: keras.Model) -> None:
        """Have dropout and noise draw other numbers on each worker; those of the chief are one worker's."""
        for generator in _private.seed_generators(model):
            state = self._extended.local_variable(generator.state.value)
            offset = tf.constant([self._extended.worker_index * _BETWEEN_SEEDS, 0], state.dtype)
            state.assign_add(offset)

    def _save_on_chief(self, model: keras.Model) -> None:
        for name in _SAVERS:
            save = getattr(model, name)
            setattr(model, name, functools.partial(self._save, save))

    def _save(self, save: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._extended.is_chief:
            return None
        with self._extended.alone({}):
            return save(*args, **kwargs)


def _note_batch_normalization(model: keras.Model) -> None:
    local = [
        layer.name
        for layer in _private.all_layers(model)
        if isinstance(layer, keras.layers.BatchNormalization) and not layer.synchronized
    ]
    if local:
        log.warning(
            "%s: each worker normalizes with its own rows, so the result is not that of one worker. "
            "BatchNormalization(synchronized=True) normalizes with the rows of all.",
            ", ".join(local),
        )
