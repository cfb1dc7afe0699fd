"""Keras's calls of ``fit``, ``evaluate`` and ``predict``, and the parts of its training loop."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
from keras.src.random.seed_generator import global_seed_generator as _global_seed_generator
from keras.src.utils.python_utils import pythonify_logs as _pythonify_logs

_CALLS = {
    inspect.unwrap(getattr(keras.Model, name)).__code__: name for name in ("fit", "evaluate", "predict")
}


@dataclass(frozen=True)
class KerasCall:
    """A call of ``fit``, ``evaluate`` or ``predict`` that is under way.

    Attributes:
        method: Which of them.
        model: The model.
        variables: The local variables of the method: its arguments, and what it made so far.
    """

    method: str
    model: keras.Model
    variables: Mapping[str, Any]

    @property
    def steps(self) -> int | None:
        """Number of batches of an epoch, as far as Keras knows it."""
        steps = self.variables["epoch_iterator"].num_batches
        return None if steps is None else int(steps)

    @property
    def callbacks(self) -> keras.callbacks.CallbackList:
        """The callbacks, once Keras has put them into its list."""
        return self.variables["callbacks"]


def keras_call() -> KerasCall | None:
    """The innermost call of Keras's fit, evaluate or predict on this thread's stack.

    Keras tells a strategy neither the model nor the callbacks that it is about to use.
    """
    frame = inspect.currentframe()
    while frame is not None:
        method = _CALLS.get(frame.f_code)
        if method is not None:
            return KerasCall(method, frame.f_locals["self"], frame.f_locals)
        frame = frame.f_back
    return None


_BUILD = inspect.unwrap(keras.Model._maybe_symbolic_build).__code__


def keras_builds_model() -> bool:
    """Whether this is called while Keras looks at the shapes of a first batch, to build the model from."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_code is _BUILD:
            return True
        frame = frame.f_back
    return False


def build(model: keras.Model, batch: Any) -> None:
    """Make the variables of a model, its metrics and its optimizer from the shapes of a batch."""
    model._symbolic_build(data_batch=batch)


_LOOP = ("fit", "evaluate", "make_train_function", "make_test_function")


def changes_keras_loop(model: keras.Model) -> bool:
    """Whether the author of a model has put something else in the place of Keras's training loop."""
    return any(
        name in vars(model) or getattr(type(model), name) is not getattr(keras.Model, name) for name in _LOOP
    )


def replaces_fit(model: keras.Model) -> bool:
    """Whether the author of a model has written a ``fit`` of his own."""
    return "fit" in vars(model) or type(model).fit is not keras.Model.fit


def initial_epoch(model: keras.Model) -> int:
    """The epoch with which ``fit`` begins: that which ``BackupAndRestore`` has restored, if it has."""
    return int(model._initial_epoch or 0)


def metrics_or_logs(model: keras.Model, logs: Any) -> dict[str, Any]:
    """What ``fit`` logs for an epoch: the metrics, or the last outputs of a step that has others."""
    return dict(_pythonify_logs(model._get_metrics_result_or_logs(logs)))


def call_on_this_thread(callbacks: keras.callbacks.CallbackList) -> None:
    """Have ``callbacks`` called on the thread of the training loop, as those must be that communicate."""
    callbacks._async_train = False


def all_layers(model: keras.Model) -> list[keras.Layer]:
    """The model's layers, those inside of layers included (``Model.layers`` has the outer ones)."""
    return list(model._flatten_layers(include_self=False))


def global_seed_generator() -> keras.random.SeedGenerator:
    """The generator for random numbers of Keras that are drawn without a seed; it has no public name."""
    return _global_seed_generator()


def seed_generators(model: keras.Model) -> list[keras.random.SeedGenerator]:
    """The generators of random numbers in the model's layers."""
    found = [
        generator for layer in model._flatten_layers() for generator in getattr(layer, "_seed_generators", ())
    ]
    return list({id(generator): generator for generator in found}.values())
