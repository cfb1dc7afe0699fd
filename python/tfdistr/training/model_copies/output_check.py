"""The comparison of a model with its copy by their outputs and gradients, for a few rows."""

from __future__ import annotations

import contextlib
import copy as copies
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.data.pipeline.worker_data import make_data
from tfdistr.data.source import Arrays
from tfdistr.errors import ArgumentError
from tfdistr.training.model_copies.fingerprint import attributes_of
from tfdistr.training.model_copies.plain_values import array_of, is_plain
from tfdistr.training.model_copies.refusals import PASS_A_FUNCTION

if TYPE_CHECKING:
    from tfdistr.training.job import Job

#: Rows that are looked at.
_ROWS = 4
# The largest relative difference that is rounding, by the bytes of a number.
_ROUNDING = {1: 0.1, 2: 0.05, 4: 1e-3, 8: 1e-8}

Array = np.ndarray
Results = list[tuple[str, Array | None]]


def first_inputs(job: Job) -> object:
    """Return the first inputs of a job, as a step gets them; None if they are not in memory."""
    if not isinstance(job.data, Arrays):
        return None
    data = make_data(job.data.rows(0, _ROWS), job.context(training=False))
    batch = data.look()
    return None if batch is None else keras.utils.unpack_x_y_sample_weight(batch)[0]


def same_outputs(model: keras.Model, copy: keras.Model, inputs: object) -> bool:
    """Compare what a model and its copy compute; both have their state afterwards."""
    try:
        there = _results(model, inputs)
    except Exception:  # the user's code may need more than the inputs
        return False
    seeds = [array_of(generator.state) for generator in tf_internals.seed_generators(model)]
    try:
        here = _results(copy, inputs, seeds)
    except Exception as error:
        raise _differ(f"{type(error).__name__} from the call of a copy: {error}") from error
    if len(there) != len(here):
        raise _differ(f"{len(there)} outputs and gradients of the model, {len(here)} of its copy")
    for (name, value), (_, found) in zip(there, here, strict=True):
        words = _difference(value, found)
        if words is not None:
            raise _differ(f"{name}: {words}")
    return True


def _differ(received: str) -> ArgumentError:
    return ArgumentError(
        "A copy of `model` computes something else than the model.",
        received=received,
        fix=f"Describe in get_config() all that its parts read, or {PASS_A_FUNCTION}",
    )


def _results(model: keras.Model, inputs: object, seeds: Sequence[Array] = ()) -> Results:
    """Return outputs and gradients as arrays, with their names; None for a weight without a gradient."""
    with tf.device("CPU:0"), tf_internals.undisturbed_session(), _restored(model):
        for generator, state in zip(tf_internals.seed_generators(model), seeds, strict=False):
            generator.state.assign(state)
        weights = model.trainable_variables
        with tf.GradientTape() as tape:
            outputs = [tf.convert_to_tensor(part) for part in tf.nest.flatten(model(inputs, training=False))]
            total = sum((_weighted(part) for part in outputs if part.dtype.is_floating), tf.constant(0.0))
            total += sum(tf.cast(loss, tf.float32) for loss in model.losses)
        gradients = tape.gradient(total, [variable.value for variable in weights])
        found: Results = [(f"output {number}", part.numpy()) for number, part in enumerate(outputs)]
        for variable, gradient in zip(weights, gradients, strict=True):
            array = None if gradient is None else tf.convert_to_tensor(gradient).numpy()
            found.append((f"the gradient of {variable.path}", array))
        return found


def _weighted(output: Any) -> Any:
    """Return a sum of the output in which each number counts, so that none cancel out."""
    weights = np.random.default_rng(0).uniform(0.5, 1.5, output.shape)
    return tf.reduce_sum(tf.cast(output, tf.float32) * tf.constant(weights, tf.float32))


@contextlib.contextmanager
def _restored(model: keras.Model) -> Iterator[None]:
    """Restore the variables that a call may change, and plain attributes, after the context."""
    trained = {id(variable) for variable in model.trainable_variables}
    held = [variable for variable in tf_internals.variables_of(model) if id(variable) not in trained]
    values = [array_of(variable) for variable in held]
    attributes = [
        (layer, name, copies.copy(value))
        for layer in tf_internals.made_layers(model)
        if not tf_internals.is_of_library(type(layer))
        for name, value in attributes_of(layer).items()
        if is_plain(value)
    ]
    try:
        yield
    finally:
        for variable, value in zip(held, values, strict=True):
            variable.assign(value)
        for layer, name, held_value in attributes:
            if vars(layer).get(name) != held_value:
                setattr(layer, name, held_value)


def _difference(there: Array | None, here: Array | None) -> str | None:
    """Return in words how two results differ; None if they do not, but for rounding."""
    if there is None and here is None:
        return None
    kinds = ["none" if array is None else f"{array.dtype} {array.shape}" for array in (there, here)]
    if there is None or here is None or kinds[0] != kinds[1]:
        return f"{kinds[0]} of the model, {kinds[1]} of its copy"
    if there.dtype.kind not in "fV":  # bfloat16 has the kind V
        return None if np.array_equal(there, here) else "other values"
    a, b = there.astype(np.float64), here.astype(np.float64)
    largest = float(np.max(np.abs(a), initial=0.0, where=np.isfinite(a)))
    rounding = _ROUNDING[min(there.dtype.itemsize, 8)]
    alike = np.allclose(a, b, rtol=rounding, atol=rounding * largest, equal_nan=True)
    return None if alike else f"a difference of up to {np.nanmax(np.abs(a - b)):.3g}"
