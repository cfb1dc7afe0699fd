"""The preparation of Keras's ``fit``, ``evaluate`` and ``predict`` under the strategy.

A call begins when Keras hands its dataset to the strategy: the model is then prepared for many workers. A
call is ready when Keras is about to make its step: the workers then compare their work, and their callbacks
are arranged. (Keras calls ``model.make_train_function()`` and similar methods on the model object. An
attribute of this object hides the method of the class, so that nothing in Keras is patched.)
"""

from __future__ import annotations

import functools
import weakref
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.collectives.comparison import agree, describe_call, describe_model, describe_parts, versions
from tfdistr.strategies.backup import resume_data
from tfdistr.strategies.build import disable_xla
from tfdistr.strategies.callbacks import coordinate, keep_quiet, notes
from tfdistr.strategies.exact.batch_check import check_batch
from tfdistr.strategies.exact.replica import OneReplica
from tfdistr.strategies.virtual.rounding import compare_machines

_MAKERS = {
    "fit": "make_train_function",
    "evaluate": "make_test_function",
    "predict": "make_predict_function",
}
_SAVERS = ("save", "save_weights", "export")


class KerasCalls:
    """The preparation of models for many workers when Keras's methods are called on them."""

    def __init__(self, extended: OneReplica) -> None:
        self._extended = extended
        self._prepared: weakref.WeakSet[keras.Model] = weakref.WeakSet()
        self._machines_compared = False

    def dataset_given(self, dataset: tf.data.Dataset) -> None:
        """Begin the call of fit, evaluate or predict that wants ``dataset`` split, if there is one."""
        call = tf_internals.keras_call()
        if call is None or "epoch_iterator" in call.variables:  # validation data within a running fit
            return
        model = call.model
        assert self._extended.collectives is not None
        agree(self._extended.collectives, describe_parts(model))
        self.prepare(model, call.variables["callbacks"])
        maker = _MAKERS[call.method]
        vars(model).pop(maker, None)  # from a call that failed before it was ready
        setattr(model, maker, functools.partial(self._make, model, maker, dataset))

    def _make(self, model: keras.Model, maker: str, dataset: tf.data.Dataset, *args: Any) -> Any:
        delattr(model, maker)
        call = tf_internals.keras_call()
        if call is not None:  # otherwise train_on_batch() finds the rest of a failed call
            fields = describe_call(call)
            training = call.method == "fit"
            self.ready(model, call.callbacks, dataset.element_spec, fields, training=training)
            if training:
                check_batch(self._extended, model, lambda: tf_internals.peek(dataset))
        return getattr(model, maker)(*args)

    def prepare(self, model: keras.Model, callbacks: Any) -> None:
        """Begin a call: before the model is built, and before Keras gives the callbacks their model."""
        disable_xla(model, "on several workers")
        if not self._extended.is_chief:
            keep_quiet(callbacks)

    def ready(
        self,
        model: keras.Model,
        callbacks: keras.callbacks.CallbackList,
        element_spec: Any,
        fields: dict[str, Any],
        training: bool,
    ) -> None:
        """Make a call ready, whose model is built: compare the workers' ``fields``, arrange the callbacks."""
        extended = self._extended
        assert extended.collectives is not None
        described = versions() | fields | describe_model(model, element_spec)
        described["virtual workers"] = str(extended.virtual.count if extended.virtual else "none")
        described["learning rates of new optimizers"] = " ".join(extended.given_rates)
        extended.given_rates.clear()  # the next call compares only new rates
        peers = agree(extended.collectives, described, notes(callbacks))
        # Not by `_prepared`, from which a model vanishes at another time on each worker.
        if extended.virtual and not self._machines_compared:
            self._machines_compared = True
            compare_machines(extended.collectives)
        if training:
            resume_data(callbacks)
        coordinate(callbacks, peers, extended, training)
        if training:
            extended.watch.begin()
        if model not in self._prepared:
            self._prepared.add(model)
            self._save_on_chief(model)
            if not extended.virtual:  # they have random numbers and rows of their own
                self._separate_random_numbers(model)

    def _separate_random_numbers(self, model: keras.Model) -> None:
        """Give dropout and noise different random numbers on each worker; the chief's equal one worker's."""
        for generator in tf_internals.seed_generators(model):
            state = self._extended.local_variable(generator.state.value)
            offset = tf.constant([self._extended.worker_index * tf_internals.BETWEEN_SEEDS, 0], state.dtype)
            state.assign_add(offset)

    def _save_on_chief(self, model: keras.Model) -> None:
        for name in _SAVERS:
            save = getattr(model, name)
            setattr(model, name, functools.partial(self._save, save))

    def _save(self, save: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._extended.is_chief:
            return None
        with self._extended.within(local_only=True):
            return save(*args, **kwargs)
