"""The comparison of values that must be equal on all workers: a difference would hang them later."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import zlib
from collections.abc import Mapping
from types import FunctionType
from typing import Any

import keras
import tensorflow as tf

from tfdistr import _version
from tfdistr.collectives.interface import Collectives
from tfdistr.errors import JobMismatchError
from tfdistr.rendezvous.peer_failure import mismatch, report
from tfdistr.tf_internals import KerasCall, all_layers, given_metrics

# The number that Keras adds to a name.
_NUMBER = re.compile(r"_\d+$")


def describe_parts(model: keras.Model) -> dict[str, str | None]:
    """Describe the parts of a model, before its variables are made.

    Workers that make other variables would wait for each other. The user's functions and classes cannot be
    compared, because each language has its own. So they are equal to anything.
    """
    fields: dict[str, str | None] = {"model": type(model).__name__}
    # A Sequential model gets its input when it is built, if not before.
    layers = [layer for layer in all_layers(model) if not isinstance(layer, keras.layers.InputLayer)]
    for number, layer in enumerate(layers):
        fields[f"layer {number}"] = f"{type(layer).__name__}({_numbers(layer)})"
    fields["optimizer"] = _describe_optimizer(model)
    losses = [_describe_loss(loss) for loss in tf.nest.flatten(getattr(model, "loss", None))]
    fields["loss"] = None if None in losses else ", ".join(filter(None, losses))
    fields["metrics"] = ", ".join(map(_name_of_metric, given_metrics(model))) or "none"
    return fields


def parts_of_run(model: keras.Model) -> dict[str, str | None]:
    """Describe what must not change when a run resumes: the parts, without numbers that training changes."""
    optimizer = getattr(model, "optimizer", None)
    return {**describe_parts(model), "optimizer": type(optimizer).__name__}


def fields_of_model(model: keras.Model, element_spec: object) -> dict[str, str]:
    """Describe the model of a call, and the types of its data."""
    size = f"{type(model).__name__} of {len(model.weights)} weights"
    fields = {"data": describe_types(element_spec), "model": size}
    for number, layer in enumerate(all_layers(model)):
        shapes = ", ".join(str(tuple(weight.shape)) for weight in layer.weights)
        fields[f"layer {number}"] = f"{type(layer).__name__}({_numbers(layer)}; weights {shapes or 'none'})"
    optimizer = _describe_optimizer(model)
    return fields if optimizer == "none" else {**fields, "optimizer": optimizer}


def _describe_optimizer(model: keras.Model) -> str:
    optimizer = getattr(model, "optimizer", None)
    return "none" if optimizer is None else f"{type(optimizer).__name__}({_numbers(optimizer)})"


def _describe_loss(loss: object) -> str | None:
    """Describe a Keras loss as an object, even if it is given by its name; None for the user's loss."""
    if loss is None:
        return "none"
    try:
        found = keras.losses.get(loss)
    except ValueError:  # a value for the user's compile()
        return None
    if not _is_of_keras(found):
        return None
    if isinstance(found, FunctionType):
        kinds = {_plain_name(kind): kind for kind in vars(keras.losses).values() if isinstance(kind, type)}
        kind = kinds.get(_plain_name(found))
        found = found if kind is None else kind()
    if isinstance(found, FunctionType):
        return found.__name__
    return f"{type(found).__name__}({_numbers(found)})"


def _name_of_metric(metric: Any) -> str:
    """Return the name of a Keras metric in the history."""
    if isinstance(metric, str):
        return metric
    if isinstance(metric, keras.metrics.Metric):
        return _NUMBER.sub("", metric.name)
    return metric.__name__ if _is_of_keras(metric) else "a function"


def _plain_name(part: Any) -> str:
    return str(part.__name__).replace("_", "").lower()


def _is_of_keras(part: object) -> bool:
    kind = part if isinstance(part, FunctionType | type) else type(part)
    return (kind.__module__ or "").partition(".")[0] == "keras"


def _numbers(part: Any) -> str:
    """Return the numbers, flags and words in the configuration of a layer or an optimizer."""
    try:
        config = part.get_config()
    except Exception:  # the user's class need not have a configuration
        return ""
    return ", ".join(
        f"{name}={_number(value)}"
        for name, value in config.items()
        # Names have a number from the order of creation, which may differ.
        if name != "name" and isinstance(value, int | float | str)
    )


def _number(value: float | str) -> str:
    """Format a number; a whole number looks like one, although R has it as a float."""
    if not isinstance(value, float):
        return str(value)
    return str(int(value)) if value.is_integer() else f"{value:.7g}"


def describe_types(element_spec: object) -> str:
    """Describe the types and shapes of the examples of batches.

    Whole numbers have one type: R has them in 32 bits, and Python in 64.
    """
    described = []
    for part in tf.nest.flatten(element_spec):
        if hasattr(part, "dtype"):
            kind = "integer" if part.dtype.is_integer else part.dtype.name
            described.append(f"{kind}{'' if part.shape.rank is None else part.shape[1:].as_list()}")
    return ", ".join(described)


# Seconds that differing workers wait for each other, so that all of them raise the error.
_ALL_KNOW = 5.0
# The message of a worker that compares values instead of making a variable.
_NO_VARIABLE = "no more variables"
_ARGUMENTS = {
    "fit": ("batch_size", "epochs", "initial_epoch", "steps_per_epoch", "shuffle", "class_weight",
            "validation_split", "validation_steps", "validation_batch_size", "validation_freq"),
    "evaluate": ("batch_size", "steps"),
    "predict": ("batch_size", "steps"),
}  # fmt: skip


def agree(collectives: Collectives, fields: Mapping[str, object], note: object = None) -> list[Any]:
    """Compare ``fields`` over all workers (None is equal to all values); return the notes of all."""
    _check_no_variable(collectives)
    own = {"fields": {name: None if v is None else str(v) for name, v in fields.items()}, "note": note}
    described = [json.loads(text) for text in collectives.exchange(json.dumps(own))]
    error = mismatch([worker["fields"] for worker in described])
    if error:
        # If the chief exited now, values that the others have not read yet would be lost.
        with contextlib.suppress(tf.errors.OpError):
            collectives.barrier(f"tfdistr/mismatch/{zlib.crc32(str(error).encode())}", _ALL_KNOW)
        raise error
    return [worker["note"] for worker in described]


def check_variable(collectives: Collectives, worker: int, name: str | None, kind: str) -> None:
    """Compare a new variable's shape and type with the chief's; tell the peers if they differ."""
    own = f"{name}, {kind}"
    chiefs = collectives.text_of_chief(own)
    if chiefs.rpartition(", ")[2] != kind:  # the numbers in names may differ
        _refuse_variable(collectives, worker, f"a variable {own}", chiefs)


def _check_no_variable(collectives: Collectives) -> None:
    """Check that the chief also compares values, where it could make one more variable."""
    chiefs = collectives.text_of_chief(_NO_VARIABLE)
    if chiefs != _NO_VARIABLE:
        _refuse_variable(collectives, collectives.index, _NO_VARIABLE, chiefs)


def _refuse_variable(collectives: Collectives, worker: int, own: str, chiefs: str) -> None:
    error = JobMismatchError(
        "The workers build different models.",
        received=f"{own} on worker {worker}, where worker 0 has {chiefs}",
        fix="Run the same program, with the same arguments and package versions, on every worker.",
    )
    collectives.report_failure(report(worker, error))
    raise error


def versions() -> dict[str, str]:
    """Return the versions that must be the same on all workers."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {
        "version of Python": python,
        "version of TensorFlow": tf.__version__,
        "version of Keras": keras.__version__,
        "version of tfdistr": _version.__version__,
    }


def describe_call(call: KerasCall) -> dict[str, object]:
    """Describe a call of fit, evaluate or predict on this worker."""
    given = call.variables
    fields: dict[str, Any] = {"call": call.method}
    fields |= {name: _plain(given[name]) for name in _ARGUMENTS[call.method]}
    fields["batches of an epoch"] = _plain(call.steps)
    fields["examples"] = _plain(_examples(given.get("x")))
    validation = given.get("validation_data")
    if isinstance(validation, tf.data.Dataset):
        types = describe_types(validation.element_spec)
        fields["validation_data"] = f"{int(validation.cardinality())} batches of {types}"
    elif call.method == "fit":
        fields["validation_data"] = "none" if validation is None else f"{_examples(validation)} examples"
    return fields


def _examples(data: object) -> int | None:
    if data is None or isinstance(data, tf.data.Dataset):
        return None
    first = next((part for part in tf.nest.flatten(data) if getattr(part, "shape", None)), None)
    return None if first is None else first.shape[0]


def _plain(value: object) -> str:
    return "none" if value is None else str(value)
