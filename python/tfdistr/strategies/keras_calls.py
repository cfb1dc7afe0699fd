"""The preparation of Keras's ``fit``, ``evaluate`` and ``predict`` under the strategy.

A call begins when Keras hands its dataset to the strategy: the model is then prepared for many workers. A
call is ready when Keras is about to make its step: the workers then compare their work, and their callbacks
are arranged. (Keras calls ``model.make_train_function()`` and similar methods on the model object. An
attribute of this object hides the method of the class, so that nothing in Keras is patched.)
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.collectives.comparison import agree, describe_call, describe_parts, fields_of_model, versions
from tfdistr.data.order.shard import common_seeds, in_common_order, is_share, take_rows
from tfdistr.strategies.backup import resume_data
from tfdistr.strategies.callbacks import coordinate, keep_quiet, notes
from tfdistr.strategies.exact.batch_check import Look, check_batch
from tfdistr.strategies.exact.prediction_check import check_predictions
from tfdistr.strategies.exact.replica import OneReplica
from tfdistr.strategies.exact.step_logs import combine_logs
from tfdistr.strategies.outside_scope import check_made_inside
from tfdistr.strategies.virtual.rounding import compare_machines
from tfdistr.strategies.xla import compile_between_exchanges, without_xla

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
        #: A model whose fit() runs, and what reads this worker's rows of a first batch of its data.
        self.data_of: tuple[keras.Model, Look] | None = None

    def dataset_given(self, dataset: tf.data.Dataset) -> None:
        """Begin the call of fit, evaluate or predict that wants ``dataset`` split, if there is one."""
        call = tf_internals.keras_call()
        if call is None or "epoch_iterator" in call.variables:  # validation data within a running fit
            return
        model = call.model
        assert self._extended.collectives is not None
        if call.method != "predict":
            check_made_inside(model, self._extended.strategy, training=call.method == "fit")
        agree(self._extended.collectives, describe_parts(model))
        self.prepare(model, call.variables["callbacks"])
        maker = _MAKERS[call.method]
        vars(model).pop(maker, None)  # from a call that failed before it was ready
        setattr(model, maker, functools.partial(self._make, model, maker, dataset))

    def _make(self, model: keras.Model, maker: str, dataset: tf.data.Dataset, *args: object) -> object:
        delattr(model, maker)
        call = tf_internals.keras_call()
        if call is not None:  # otherwise train_on_batch() finds the rest of a failed call
            fields = describe_call(call) | {"seeds of the data": common_seeds(dataset)}
            training = call.method == "fit"
            self.ready(model, call.callbacks, dataset.element_spec, fields, training=training)
            if call.method != "predict":
                return self._checked(model, call, maker, dataset, args)
            check_predictions(self._extended, model, functools.partial(tf_internals.peek, dataset))
        return getattr(model, maker)(*args)

    def _checked(
        self,
        model: keras.Model,
        call: tf_internals.KerasCall,
        maker: str,
        dataset: tf.data.Dataset,
        args: Sequence[object],
    ) -> object:
        """Check the first batch, and let Keras make its function for the steps."""
        kinds = ["train"] if call.method == "fit" else ["test"]
        if call.method == "fit" and call.variables["validation_data"] is not None:
            kinds += ["test"] if tf_internals.overrides(model, "test_step") else []

        def check(look: Look, *, alone: bool = True) -> None:
            for kind in kinds:
                check_batch(self._extended, model, look, kind=kind, alone=alone)

        given = self.data_of is not None and self.data_of[0] is model and call.method == "fit"
        if not given and tf_internals.python_ops(dataset) and model.steps_per_execution == 1:
            made = getattr(model, maker)(*args)
            _check_with_first_batch(model, f"{kinds[0]}_function", dataset, check)
            return made
        look = self.data_of[1] if given and self.data_of else functools.partial(self._first_rows, dataset)
        check(functools.cache(look))
        return getattr(model, maker)(*args)

    def _first_rows(self, dataset: tf.data.Dataset) -> object:
        """Return this worker's rows of the first batch; None if Python code makes batches."""
        if is_share(dataset):
            return tf_internals.peek(dataset)
        place = self._extended.place
        batch = tf_internals.peek(in_common_order(dataset, *place))
        return None if batch is None else take_rows(batch, *place)

    def prepare(self, model: keras.Model, callbacks: object) -> None:
        """Begin a call: before the model is built, and before Keras gives the callbacks their model."""
        if self._extended.virtual:
            without_xla(model)
        else:
            compile_between_exchanges(model, "several workers", is_chief=self._extended.is_chief)
        if not self._extended.is_chief:
            keep_quiet(callbacks)

    def ready(
        self,
        model: keras.Model,
        callbacks: keras.callbacks.CallbackList,
        element_spec: object,
        fields: dict[str, Any],
        training: bool,
    ) -> None:
        """Make a call ready, whose model is built: compare the workers' ``fields``, arrange the callbacks."""
        extended = self._extended
        assert extended.collectives is not None
        described = versions() | fields | fields_of_model(model, element_spec)
        described["virtual workers"] = str(extended.virtual.count if extended.virtual else "none")
        described["learning rates of new optimizers"] = " ".join(extended.checks.given_rates)
        extended.checks.given_rates.clear()  # the next call compares only new rates
        peers = agree(extended.collectives, described, notes(callbacks))
        # Not by `_prepared`, from which a model vanishes at another time on each worker.
        if extended.virtual and not self._machines_compared:
            self._machines_compared = True
            compare_machines(extended.collectives)
        if training:
            resume_data(callbacks)
        coordinate(callbacks, peers, extended, training)
        if training:
            extended.checks.loss.begin()
            extended.differences.clear()
            extended.layers.begin(model)
        combine_logs(extended, model)
        if model not in self._prepared:
            self._prepared.add(model)
            self._save_on_chief(model)
            if not extended.virtual:  # they have random numbers and rows of their own
                self._separate_random_numbers(model)

    def _separate_random_numbers(self, model: keras.Model) -> None:
        """Give dropout and noise different random numbers on each worker; the chief's equal one worker's."""
        for generator in tf_internals.seed_generators(model):
            state = self._extended.local_variable(generator.state.value)
            state.assign_add(tf_internals.seed_offset(self._extended.worker_index, state.dtype))

    def _save_on_chief(self, model: keras.Model) -> None:
        for name in _SAVERS:
            save = getattr(model, name)
            setattr(model, name, functools.partial(self._save, save))

    def _save(self, save: Any, *args: Any, **kwargs: Any) -> object:
        if not self._extended.is_chief:
            return None
        with self._extended.within(local_only=True):
            return save(*args, **kwargs)


def _check_with_first_batch(
    model: keras.Model, name: str, dataset: tf.data.Dataset, check: Callable[..., None]
) -> None:
    """Check with the first batch that Keras's function ``name`` gets: a generator cannot be read twice."""
    function = getattr(model, name)

    def first_call(iterator: Any) -> object:
        setattr(model, name, function)
        batch = next(iterator)
        check(lambda: batch, alone=False)  # the generator may be running
        # Of the type of the other batches, so that the function is traced once.
        once = dataset.take(0).concatenate(tf.data.Dataset.from_tensors(batch))
        return function(iter(once))

    setattr(model, name, first_call)
