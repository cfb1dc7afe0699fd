"""Keras's calls of ``fit``, ``evaluate`` and ``predict``, and the parts of its training loop."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import keras
import tensorflow as tf
from keras.src import backend as _backend
from keras.src.backend.common import global_state as _global_state
from keras.src.backend.common.symbolic_scope import in_symbolic_scope as _in_symbolic_scope
from keras.src.backend.tensorflow.trainer import TFEpochIterator as _TFEpochIterator
from keras.src.layers.rnn.dropout_rnn_cell import DropoutRNNCell as _DropoutRNNCell
from keras.src.random.seed_generator import global_seed_generator as _global_seed_generator

# Keras stores its global random number generator under this name.
_SEED_GENERATOR = "global_seed_generator"

_CALLS = {
    inspect.unwrap(getattr(keras.Model, name)).__code__: name for name in ("fit", "evaluate", "predict")
}


@dataclass(frozen=True)
class KerasCall:
    """A running call of ``fit``, ``evaluate`` or ``predict``, with its local variables."""

    method: str
    model: keras.Model
    variables: Mapping[str, Any]

    @property
    def steps(self) -> int | None:
        """Number of batches of an epoch; None if Keras does not know it."""
        steps = self.variables["epoch_iterator"].num_batches
        return None if steps is None else int(steps)

    @property
    def callbacks(self) -> keras.callbacks.CallbackList:
        """The callbacks. They are available after Keras has put them into its list."""
        return self.variables["callbacks"]


def keras_call() -> KerasCall | None:
    """Return the innermost call of Keras's fit, evaluate or predict on this thread's stack; None without one.

    Keras does not tell a strategy which model and which callbacks it will use.
    """
    frame = innermost(_CALLS)
    return frame and KerasCall(_CALLS[frame.f_code], frame.f_locals["self"], frame.f_locals)


def innermost(codes: Container[CodeType], frame: FrameType | None = None) -> FrameType | None:
    """Return the innermost frame, on this thread's stack or from ``frame`` up, that runs one of the codes."""
    frame = frame or inspect.currentframe()
    while frame is not None and frame.f_code not in codes:
        frame = frame.f_back
    return frame


_READER = _TFEpochIterator.__init__.__code__


def on_end_of_data(tell: Callable[[int, int | None], None]) -> None:
    """Replace Keras's warning that the data has too few batches, in the call that distributes its data now.

    An attribute of Keras's iterator object hides ``EpochIterator._interrupted_warning``. Keras calls it in
    each epoch, and also at the end of data of an unknown size, all of which was wanted.
    """
    frame = innermost([_READER])
    if frame is None:  # the user has distributed the data
        return
    reader = frame.f_locals["self"]
    told = False

    def ended() -> None:
        nonlocal told
        if reader.steps_per_epoch and not told:
            told = True
            tell(int(reader.steps_per_epoch), _batches_of(reader))

    reader._interrupted_warning = ended


def _batches_of(reader: Any) -> int | None:
    """Return the number of batches of Keras's iterator, at their end."""
    if (known := reader.data_adapter.num_batches) is not None:
        return int(known)
    # Keras has counted the step that found no batch.
    return int(reader._steps_seen) - 1 if reader.steps_per_execution == 1 else None


_BUILD = inspect.unwrap(keras.Model._maybe_symbolic_build).__code__


def keras_builds_model() -> bool:
    """Return whether Keras is currently building the model from the shapes of a first batch."""
    return innermost([_BUILD]) is not None


def keras_is_symbolic() -> bool:
    """Return whether Keras computes shapes only, as it does to build a model; this has no public name."""
    return bool(_in_symbolic_scope())


def build_by_keras(model: keras.Model, batch: object) -> None:
    """Make the variables of a model, its metrics and its optimizer from the shapes of a batch."""
    type(model)._symbolic_build(model, data_batch=batch)  # not what ``build_instead`` hides it by


def build_instead(model: keras.Model, by: Callable[[Any], None]) -> None:
    """Make ``fit`` and ``evaluate`` build a model with ``by(batch)``; Keras would call the model.

    An attribute of the object hides ``Model._symbolic_build``, the only place where Keras does so.
    """
    model._symbolic_build = lambda iterator=None, data_batch=None: by(data_batch)


def trace_without_effect(function: Callable[[], object]) -> None:
    """Trace a function that changes nothing; the Keras variables that it creates exist afterwards.

    Keras builds models so. It has no public function for functions that use more than Keras's operations.
    """
    _backend.compute_output_spec(function)


_LOOP = ("fit", "evaluate", "make_train_function", "make_test_function")


def changes_of_keras_loop(model: keras.Model) -> list[str]:
    """Return the methods of Keras's training loop that the class or the object of a model replaces."""
    return [name for name in _LOOP if name in vars(model) or overrides(model, name)]


def overrides(model: keras.Model, name: str) -> bool:
    """Return whether the class of a model has its own method ``name`` in place of Keras's."""
    return getattr(type(model), name) is not getattr(keras.Model, name)


def initial_epoch(model: keras.Model) -> int:
    """Return the first epoch of ``fit``: the epoch that ``BackupAndRestore`` has restored, or else 0."""
    return int(model._initial_epoch or 0)


def pass_epochs(call: KerasCall, epochs: int) -> None:
    """Read the data of some epochs as ``fit`` does, without its steps."""
    epoch_iterator = call.variables["epoch_iterator"]
    for _ in range(epochs):
        with epoch_iterator.catch_stop_iteration():
            for _, _, iterator in epoch_iterator:
                for number in range(epoch_iterator.steps_per_execution):
                    if next(iterator, None) is not None:
                        continue
                    if number == 0:  # a step would find no batch
                        raise tf.errors.OutOfRangeError(None, None, "the end of the data")
                    break


def metrics_or_logs(model: keras.Model, logs: object) -> dict[str, Any]:
    """Return the logs of ``fit`` for an epoch: the metrics, or the last logs of a step with other logs."""
    return dict(model._get_metrics_result_or_logs(logs))


def reduce_step_logs(model: keras.Model, reduce: Callable[[dict[str, Any]], dict[str, object]]) -> None:
    """Make ``fit`` and ``evaluate`` of a model replace its last logs by ``reduce(logs)``, if it shows these.

    Keras shows the values of metrics instead, unless a step of the user has other logs. An attribute of the
    object hides ``Model._get_metrics_result_or_logs``, which Keras calls once per epoch.
    """
    usual = type(model)._get_metrics_result_or_logs

    def metrics_or_reduced(logs: object) -> Any:
        shown = usual(model, logs)
        return reduce(logs) if shown is logs and isinstance(logs, dict) else shown

    model._get_metrics_result_or_logs = metrics_or_reduced


def call_on_this_thread(callbacks: keras.callbacks.CallbackList) -> None:
    """Make Keras call ``callbacks`` on the thread of the training loop, as communication requires."""
    callbacks._async_train = False


def all_layers(model: keras.Model) -> list[keras.Layer]:
    """Return the model's layers and the layers inside of them (``Model.layers`` has only outer layers)."""
    return list(model._flatten_layers(include_self=False))


def given_metrics(model: keras.Model) -> list[Any]:
    """Return the metrics that ``compile`` was given. ``Model.metrics`` has them when the model is built."""
    compiled = getattr(model, "_compile_metrics", None)
    if compiled is None:
        return []
    given = [compiled._user_metrics, compiled._user_weighted_metrics]
    return [metric for metric in keras.tree.flatten(given) if metric is not None]


def global_seed_generator() -> keras.random.SeedGenerator:
    """Return the generator that Keras uses for random numbers without a seed. It has no public name."""
    return _global_seed_generator()


def existing_seed_generator() -> keras.random.SeedGenerator | None:
    """Return the generator of ``global_seed_generator()``; None if Keras has not created it yet."""
    return _global_state.get_global_attribute(_SEED_GENERATOR)


@contextlib.contextmanager
def no_new_seed_generator() -> Iterator[None]:
    """Remove Keras's global random number generator after the context, unless it existed before."""
    before = existing_seed_generator()
    try:
        yield
    finally:
        _global_state.set_global_attribute(_SEED_GENERATOR, before)


def layers_with_generators(model: keras.Model) -> list[tuple[keras.Layer, keras.random.SeedGenerator]]:
    """Return the model and its layers that may draw random numbers, with each generator.

    Keras's recurrent cells hold a generator also if they drop nothing.
    """
    silent = [each for each in model._flatten_layers() if isinstance(each, _DropoutRNNCell)
              and each.dropout == each.recurrent_dropout == 0.0]  # fmt: skip
    return [(layer, generator) for layer, generator in _held_generators(model) if layer not in silent]


def _held_generators(model: keras.Model) -> list[tuple[keras.Layer, keras.random.SeedGenerator]]:
    return [
        (layer, generator)
        for layer in model._flatten_layers()
        for generator in getattr(layer, "_seed_generators", ())
    ]


def seed_generators(model: keras.Model) -> list[keras.random.SeedGenerator]:
    """Return the generators of random numbers in the model's layers, each once."""
    return list({id(generator): generator for _, generator in _held_generators(model)}.values())
