"""The parts of a model that are not proved to work row by row.

The steps of several workers add up to the step of one if every part of the model works row by row. A test
tries Keras's own classes and functions: for rows A and B each must give its result for A, then that for B. It
tries all ranks of the input, and all kinds of arguments that `row_wise_arguments` does not refuse. Those that
pass are in row_wise.json, by Keras version. An operation of a functional model is tried when the model is
used, because its arguments and shapes are too many for a list. What is not Keras's own is never proved: a few
rows can agree by chance.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Hashable, Iterator
from pathlib import Path

import keras

from tfdistr import tf_internals
from tfdistr.strategies.exact.row_wise_arguments import Use, refused_argument
from tfdistr.strategies.exact.row_wise_operations import unproved_operations

#: For each name, such as "layers.Dense", the versions of Keras in which the part is proved, by the ranks of
#: its inputs: {"2 3 4": ["3.14", "3.15"]}. For a loss or a metric it is the rank of the predictions.
RECORD = Path(__file__).with_name("row_wise.json")
#: Stands in the record for inputs of several ranks in one call.
MIXED = 0

# What changes the computation of a step if a class that is not Keras's has it.
_METHODS = (
    "train_step", "test_step", "compute_loss", "compute_metrics", "call", "__call__", "losses", "metrics",
)  # fmt: skip
# Keras chooses between these.
_ACCURACIES = ("BinaryAccuracy", "CategoricalAccuracy", "SparseCategoricalAccuracy")
_CROSSENTROPIES = ("BinaryCrossentropy", "CategoricalCrossentropy", "SparseCategoricalCrossentropy")
_CHOSEN = {
    "accuracy": _ACCURACIES, "acc": _ACCURACIES, "crossentropy": _CROSSENTROPIES, "ce": _CROSSENTROPIES,
}  # fmt: skip
# Batch statistics have a warning of their own. An input computes nothing.
_HANDLED_ELSEWHERE = (keras.layers.BatchNormalization, keras.layers.InputLayer)


def unproved_parts(model: keras.Model) -> list[str]:
    """Return the parts of a compiled model that are not proved to work row by row, as messages name them."""
    # Each loss and each metric may belong to any output.
    ranks = [{rank} for rank in {len(output.shape) for output in getattr(model, "outputs", None) or ()}]
    models = [model, *(layer for layer in tf_internals.all_layers(model) if isinstance(layer, keras.Model))]
    return [
        *(f"{name}()" for name in _own_methods(model)),
        *_unproved_losses(model, ranks),
        *_unproved_metrics(model, ranks),
        *_unproved_layers(model),
        *(name for each in models for name in unproved_operations(each)),
        *_unproved_optimizers(model),
    ]


@functools.cache
def proved(version: str) -> dict[object, frozenset[int]]:
    """Return the classes and functions proved for a version of Keras, with the ranks of their inputs."""
    minor = ".".join(version.split(".")[:2])
    found = {}
    for name, by_ranks in json.loads(RECORD.read_text()).items():
        space, _, part = name.partition(".")
        ranks = next((ranks for ranks, versions in by_ranks.items() if minor in versions), None)
        if ranks is not None:
            found[getattr(getattr(keras, space), part)] = frozenset(map(int, ranks.split()))
    return found


def _fault_of(part: object, uses: Collection[set[int]]) -> str | None:
    """Return the argument of a part that may mix rows, "" if it is not on the record, None if proved."""
    is_object = isinstance(part, keras.Layer | keras.Loss | keras.Metric)
    function, more = tf_internals.wrapped_function(part) if is_object else (None, {})
    looked_up = function if type(part) in tf_internals.WRAPPERS else type(part) if is_object else part
    for ranks in uses or [set()]:
        use = Use(ranks, functools.partial(_is_proved, ranks=ranks))
        if not use.is_proved(looked_up):
            return ""
        refused = refused_argument(part, use, more) if is_object else None
        if refused:
            return f" with {refused}"
    return None


def _is_proved(part: object, ranks: set[int]) -> bool:
    known = proved(keras.__version__)
    used = {max(ranks), MIXED} if len(ranks) > 1 else ranks
    return isinstance(part, Hashable) and part in known and known[part].issuperset(used)


def _own_methods(model: keras.Model) -> list[str]:
    own = [vars(cls) for cls in type(model).__mro__ if not _is_of_libraries(cls)]
    return [name for name in _METHODS if any(name in names for names in (vars(model), *own))]


def _is_of_libraries(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in ("keras", "tensorflow", "builtins")


def _unproved_losses(model: keras.Model, uses: Collection[set[int]]) -> Iterator[str]:
    for given in tf_internals.given_losses(model):
        fault = _fault_of(tf_internals.named("loss", given), uses)
        if fault is not None:
            yield f"the loss {_name(given)!r}{fault}"


def _unproved_metrics(model: keras.Model, uses: Collection[set[int]]) -> Iterator[str]:
    for given in tf_internals.given_metrics(model):
        chosen = [getattr(keras.metrics, name) for name in _CHOSEN.get(str(given).lower(), ())]
        parts = chosen or [tf_internals.named("metric", given)]
        # A loss object gives one number for a batch.
        faults = ["" if isinstance(part, keras.Loss) else _fault_of(part, uses) for part in parts]
        found = [fault for fault in faults if fault is not None]
        if found:
            yield f"the metric {_name(given)!r}{found[0]}"


def _name(given: object) -> str:
    function, _ = tf_internals.wrapped_function(given)
    names = (given, getattr(given, "name", None), getattr(function or given, "__name__", None))
    return next((name for name in names if isinstance(name, str)), type(given).__name__)


def _unproved_layers(model: keras.Model) -> Iterator[str]:
    for layer in tf_internals.all_layers(model):
        fault = _fault_of_layer(layer)
        if fault is not None:
            yield f"the layer {layer.name!r} ({type(layer).__name__}){fault}"


def _fault_of_layer(layer: keras.Layer) -> str | None:
    if type(layer) in _HANDLED_ELSEWHERE:
        return None
    if isinstance(layer, keras.Model):
        return "" if _own_methods(layer) else None
    return "" if "call" in vars(layer) else _fault_of(layer, tf_internals.input_ranks(layer))


def _unproved_optimizers(model: keras.Model) -> Iterator[str]:
    given = getattr(model, "optimizer", None)
    for optimizer in tf_internals.with_inner_optimizers(given) if given is not None else ():
        name = type(optimizer).__name__
        if getattr(keras.optimizers, name, None) is not type(optimizer):
            yield f"the optimizer {name}"
