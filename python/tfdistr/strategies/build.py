"""The preparation of a model for training on workers: its weights, and batch normalization."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.pipeline.worker_data import WorkerData
from tfdistr.strategies.exact.exchange import check_no_strange_optimizer

# Rows of the batch of zeros: not 1, because a dimension of size 1 could be dropped.
_ROWS = 2


def has_known_shapes(element_spec: object) -> bool:
    """Return whether only the number of rows of a batch is unknown, and no other dimension."""
    return all(
        isinstance(part, tf.TensorSpec) and part.shape.rank and None not in part.shape[1:].as_list()
        for part in tf.nest.flatten(element_spec)
    )


def batch_of_zeros(element_spec: object, model: keras.Model | None) -> Any:
    """Make a batch of zeros for a model. The shapes of the batch must be known."""
    inputs = getattr(model, "inputs", None) or ()
    fixed = next((tensor.shape[0] for tensor in inputs if tensor.shape[0]), None)  # Input(batch_shape=...)
    return tf.nest.map_structure(
        lambda spec: tf.zeros([fixed or spec.shape[0] or _ROWS, *spec.shape[1:]], spec.dtype), element_spec
    )


class WithoutFirstLook:
    """A dataset of batches that gives Keras a batch of zeros when Keras only needs shapes.

    Args:
        dataset: Batches whose shapes are known.
        distributed: The same batches for the replicas of a strategy; by default the dataset itself.
    """

    def __init__(
        self,
        dataset: tf.data.Dataset,
        model: keras.Model,
        distributed: tf.distribute.DistributedDataset | None = None,
    ) -> None:
        self._dataset, self._model = dataset, model
        self._distributed = dataset if distributed is None else distributed

    @property
    def element_spec(self) -> Any:
        """The shapes and types of a batch."""
        return self._dataset.element_spec

    def __iter__(self) -> Iterator[Any]:
        if not tf_internals.keras_builds_model():
            return iter(self._distributed)
        return iter(tf.data.Dataset.from_tensors(batch_of_zeros(self.element_spec, self._model)))


def build(
    model: keras.Model,
    data: tf.data.Dataset | WorkerData,
    *,
    optimizer: bool = True,
    training: bool = True,
) -> None:
    """Create the model's weights and metrics before its step is traced, as Keras does under a strategy."""
    if has_known_shapes(data.element_spec):
        batch = batch_of_zeros(data.element_spec, model)
    else:
        batch = data.example if isinstance(data, WorkerData) else next(iter(data))
    _build(model, batch, optimizer=optimizer, training=training)


def _build(model: keras.Model, batch: object, *, optimizer: bool, training: bool) -> None:
    called = has_call(model) and _build_by_call(model, batch, training=training)
    build_by_step(model, batch, training=training, optimizers=optimizer, called=called)
    if called and optimizer:  # last: it trains all weights
        with model.distribute_strategy.scope():
            tf_internals.build_by_keras(model, batch)


def _build_by_call(model: keras.Model, batch: object, *, training: bool) -> bool:
    """Build a model by a call with the inputs of a batch; return False if only its own step can call it.

    Keras's call has ``x`` alone. A step may call the model with the whole batch, such as three images.
    """
    try:
        with tf_internals.overridden(model, "optimizer", None), model.distribute_strategy.scope():
            tf_internals.build_by_keras(model, batch)
    except Exception:
        if not tf_internals.overrides(model, "train_step" if training else "test_step"):
            raise
        return False
    return True


def has_call(model: keras.Model) -> bool:
    """Return whether a model can be called; otherwise its steps only call its parts."""
    return type(model).call is not keras.Model.call


def let_keras_build(model: keras.Model) -> None:
    """Make Keras's own ``fit`` and ``evaluate`` also build parts that only a step of the model uses."""
    if not any(tf_internals.overrides(model, name) for name in ("train_step", "test_step", "compute_loss")):
        return

    def by_step(batch: object) -> None:
        call = tf_internals.keras_call()
        _build(model, batch, optimizer=True, training=call is None or call.method == "fit")

    tf_internals.build_instead(model, by_step)


def build_by_step(
    model: keras.Model,
    batch: object,
    *,
    training: bool = True,
    optimizers: bool = True,
    called: bool | None = None,
) -> None:
    """Build parts that only the steps of a model use, by a trace of a step without effects.

    They are the layers of a model without ``call()``, layers that ``compute_loss()`` uses, and optimizers
    other than ``model.optimizer``. Each optimizer is built for the variables that the step passes to it, as
    in a process without a strategy. Workers cannot create them in their steps: the initial values are the
    chief's.
    """
    called = has_call(model) if called is None else called
    name = "train_step" if training else "test_step"
    own = (name, "compute_loss") if called else (name,)  # Keras's own step needs call()
    if not any(tf_internals.overrides(model, method) for method in own):
        return
    if model.run_eagerly and called:
        return  # its step can create them
    found = tf_internals.optimizers_of(model) if optimizers and training else []
    if called:  # Keras builds it for all weights
        found = [optimizer for optimizer in found if optimizer is not model.optimizer]
    unbuilt = [optimizer for optimizer in found if not optimizer.built]
    if unbuilt or not all(layer.built for layer in tf_internals.all_layers(model)):
        trained = _trace_again(model, name, batch)
        with model.distribute_strategy.scope():
            for optimizer in unbuilt:
                if id(optimizer) in trained:
                    optimizer.build(trained[id(optimizer)])
    if not called:
        model.built = True


def _trace_again(model: keras.Model, name: str, batch: object) -> dict[int, list[Any]]:
    """Trace a step; trace it again if the first trace has failed because it created weights.

    A tape has no gradients of weights that its own trace has created.
    """
    known = len(model.variables)
    try:
        return _trace(model, name, batch)
    except Exception:
        if len(model.variables) == known:
            raise
        return _trace(model, name, batch)


def _trace(model: keras.Model, name: str, batch: Any) -> dict[int, list[Any]]:
    """Trace a step; return the variables that it passes to each optimizer, by the optimizer's id."""
    step = getattr(model, name)
    plain = tf_internals.keras_step(step, inline=True)  # not the function that tf.function has compiled
    step = plain[1] if plain else step
    strategy = model.distribute_strategy
    trained: dict[int, list[Any]] = {}

    def note(optimizer: Any, gradients: Any, variables: Any, own: tf_internals.Apply) -> None:
        trained[id(optimizer)] = list(model.trainable_variables if variables is None else variables)

    def in_replica() -> Any:
        with _one_replica(strategy):
            return step(batch)

    with strategy.scope(), tf_internals.optimizer_hooks(model, lambda loss: loss, note):
        try:
            tf_internals.trace_without_effect(in_replica)
        except ValueError as error:  # Keras creates no variables where values are collected
            check_no_strange_optimizer(error)
            raise
    return trained


def _one_replica(strategy: tf.distribute.Strategy) -> Any:
    """Return the context of a replica; that of a worker exchanges nothing."""
    of_worker = getattr(strategy.extended, "without_peers", None)
    return of_worker() if of_worker else tf.distribute.ReplicaContext(strategy, replica_id_in_sync_group=0)
