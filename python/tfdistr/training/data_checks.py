"""Checks that the parts of a batch are those that a model takes."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import keras
import tensorflow as tf

from tfdistr.data.source import Arrays
from tfdistr.data.trees import replaced
from tfdistr.errors import ArgumentError
from tfdistr.training.job import Job
from tfdistr.training.model_copies.given_model import callers_model

#: TensorFlow's error of a loss that takes the numbers of classes.
_NO_CLASS = re.compile(r"Received a label value of (-?\d+) which is outside the valid range of \[0, (\d+)\)")


def check_given(job: Job) -> None:
    """Check arrays by a model that was given, in the caller's process."""
    model = callers_model(job.model)
    if model is not None and isinstance(job.data, Arrays):
        check_data(model, tuple(replaced(part, _spec) for part in job.data.parts))


def _spec(array: Any) -> tf.TensorSpec:
    return tf.TensorSpec((None, *array.shape[1:]), tf.as_dtype(array.dtype))


def check_data(model: keras.Model, element_spec: object) -> None:
    """Check the inputs and the labels of batches with these types."""
    x, *others = element_spec if isinstance(element_spec, tuple) else (element_spec,)
    if not _has_own_step(model):
        _check_inputs(model, x)
    check_labels(model, others[0] if others else ())
    if not others and _needs_numbers(model):
        raise ArgumentError(
            "The loss of the model needs `y`.",
            received="examples without targets",
            fix="Pass `y`, or examples (x, y).",
        )


def _check_inputs(model: keras.Model, x: object) -> None:
    """Check that inputs are one for each input of a model, by name or by place.

    Keras's errors are about the structure of tensors. Inputs with other names than those of a dictionary of
    inputs it takes in the order of the names, with a warning.
    """
    wanted = _inputs_of(model)
    if wanted is None:
        return
    given = set(x) if isinstance(x, Mapping) else set()
    if given and None not in wanted:
        fits = set(wanted) <= given if not isinstance(model.input, Mapping) else set(wanted) == given
    else:  # Keras takes a list in the order of sorted names
        in_order = (
            not given and isinstance(getattr(model, "input", None), Mapping) and wanted != sorted(wanted)
        )
        fits = len(tf.nest.flatten(x)) == len(wanted) and not in_order
    one = len(wanted) == 1
    text = [] if _takes_text(model) else _names_of_text(x)
    if fits and not (one and text):
        return
    received = _listed(sorted(given)) or f"{len(tf.nest.flatten(x))} arrays"
    fix = "Pass an array for each input, by its name."
    if one:
        fix = "Pass one array, or columns that have one number in each row."
    if one and text:
        fix = f"Convert the text in {_listed(text)} to numbers, or give the model an input for each column."
    if fits:
        received, fix = (
            "text",
            f"Convert the text in {_listed(text)} to numbers, or give the model an input of text.",
        )
    raise ArgumentError(
        "`x` must have the inputs of the model.",
        received=f"{received}, where the model takes {'one array' if one else _listed(wanted)}",
        fix=fix,
    )


def _takes_text(model: keras.Model) -> bool:
    return model.built and any(part.dtype == "string" for part in getattr(model, "inputs", None) or [])


def _names_of_text(x: object) -> list[str]:
    parts = x if isinstance(x, Mapping) else {"x": x}
    return [name for name, part in parts.items() if getattr(part, "dtype", None) == tf.string]


def _inputs_of(model: keras.Model) -> list[Any] | None:
    """Return the names of a model's inputs, which may be None; None where only its call knows them."""
    own = (getattr(type(model), name) for name in ("call", "fit"))  # which may take other inputs
    if not all(str(getattr(method, "__module__", "")).startswith("keras.") for method in own):
        return None
    if isinstance(model, keras.Sequential):
        first = model.layers[0] if model.layers else None
        takes_one = isinstance(getattr(first, "input_spec", None), keras.layers.InputSpec)
        return [model.inputs[0].name] if model.built else [None] if takes_one else None
    try:
        inputs = model.input
    except (AttributeError, ValueError):  # no functional model
        return None
    if isinstance(inputs, Mapping):
        return list(inputs)
    flat = inputs if isinstance(inputs, list | tuple) else [inputs]
    return [one.name for one in flat] if all(isinstance(one, keras.KerasTensor) for one in flat) else None


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(repr, names))


def check_labels(model: keras.Model, labels: object) -> None:
    """Check that the labels are numbers if the losses of ``compile()`` get them.

    Keras casts labels to the type of the outputs before it calls a loss, also the user's. TensorFlow's error
    ("Cast string to float is not supported") names neither the labels nor the fix. The user's training step
    or ``__call__()`` may use text.
    """
    _check_names(model, labels)
    if not any(part.dtype == tf.string for part in tf.nest.flatten(labels)):
        return
    if _needs_numbers(model):
        raise ArgumentError(
            "The labels must be numbers: Keras casts them to the type of the model's outputs.",
            received="text as labels",
            fix="Pass the numbers of the classes, from 0, or in R a factor. "
            "Records need numbers as their `target`.",
        )


@contextlib.contextmanager
def label_errors() -> Iterator[None]:
    """Replace TensorFlow's error for a label that is no class of the model, which shows frames and no fix."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        found = _NO_CLASS.search(error.message)
        if found is None:
            raise
        raise ArgumentError(
            "The labels must be the numbers of classes, from 0, for each of which the model has an output.",
            received=f"the label {found[1]}, where the model has {found[2]} outputs",
            fix="Count the classes from 0, and give the model an output for each, with or without examples.",
        ) from error


def _needs_numbers(model: keras.Model) -> bool:
    losses = [loss for loss in tf.nest.flatten(model.loss) if loss is not None]
    return bool(losses) and not _has_own_step(model) and not any(map(_casts_nothing, losses))


def _has_own_step(model: keras.Model) -> bool:
    steps = ("train_step", "compute_loss")
    return any(getattr(type(model), name) is not getattr(keras.Model, name) for name in steps)


def _check_names(model: keras.Model, labels: object) -> None:
    """Check that labels by name are those of the outputs. Keras's error is about a type, or a missing key."""
    outputs = getattr(model, "output_names", None) or []
    given = tf.nest.flatten(labels)
    if not given or len(outputs) < 2 or _has_own_step(model):
        return
    needed = set(model.loss) if isinstance(model.loss, Mapping) else set()
    if isinstance(by_name := getattr(model, "output", None), Mapping):
        outputs, needed = list(by_name), needed & set(by_name)
    if not isinstance(labels, Mapping):
        fits = len(given) in (len(outputs), len(needed)) or None in tf.nest.flatten(model.loss)
    else:
        fits = set(labels) <= {*outputs, *model.output_names} and needed <= set(labels)
    if fits:
        return
    names = _listed(labels) if isinstance(labels, Mapping) else f"{len(given)} targets without names"
    raise ArgumentError(
        "`y` must have the names of the model's outputs.",
        received=f"{names}, where the outputs are {_listed(outputs)}",
        fix="Name each target after its output.",
    )


def _casts_nothing(loss: object) -> bool:
    return isinstance(loss, keras.losses.Loss) and type(loss).__call__ is not keras.losses.Loss.__call__
