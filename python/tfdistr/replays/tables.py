"""The tables of a replayed step: its rows, its gradients and its updates."""

from __future__ import annotations

import contextlib
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.checkpoint.folder import Array
from tfdistr.data.order.shard import bounds
from tfdistr.replays.rerun import Rerun
from tfdistr.strategies.exact.loss_weighting import count_examples
from tfdistr.training.step_blocks import extended_of

#: A row of a table.
Row = dict[str, Any]


def gradients_of(made: Rerun) -> list[Row]:
    """Return a row for each weight that got a gradient: its layer, and how large the gradient is."""
    return [_sizes(path, value) for path, value in made.gradients.items()]


def updates_of(made: Rerun) -> list[Row]:
    """Return a row for each trainable weight: its layer, and how large the change by the step is."""
    trained = {weight.path for weight in made.model.trainable_variables}
    changes = zip(made.variables, made.before, made.after, strict=True)
    return [_sizes(v.name, after - before) for v, before, after in changes if v.name in trained]


def _sizes(path: str, value: Array) -> Row:
    numbers = np.asarray(value, np.float64)
    finite = numbers[np.isfinite(numbers)]
    size = max(1, numbers.size)
    return {
        "layer": path.rpartition("/")[0],
        "weight": path.rpartition("/")[2],
        "norm": float(np.sqrt(np.sum(np.square(numbers)))),
        "largest": float(np.max(np.abs(finite), initial=0.0)),
        "nan": float(np.isnan(numbers).sum()) / size,
        "inf": float(np.isinf(numbers).sum()) / size,
    }


def example_losses(made: Rerun, shares: int) -> list[float] | None:
    """Return the loss of each row of a step; None if the model shows no loss of single rows.

    It is what ``compute_loss`` gives for the row alone. The outputs are those of the whole share, so that
    batch normalization sees the rows that it saw. Random layers draw other numbers.
    """
    model = made.model
    if tf_internals.overrides(model, "train_step") or not tf_internals.given_losses(model):
        return None
    x, y, weights = keras.utils.unpack_x_y_sample_weight(made.batch)
    count = int(count_examples(made.batch))
    dense = all(isinstance(part, tf.Tensor) for part in tf.nest.flatten((x, y, weights)) if part is not None)
    if not dense:
        return None
    normal = [
        part for part in tf_internals.all_layers(model) if isinstance(part, keras.layers.BatchNormalization)
    ]
    if normal and all(part.synchronized for part in normal):
        shares = 1  # they saw all rows
    parts = [cut((x, y, weights), *map(int, bounds(count, shares, share))) for share in range(shares)]
    of_rows = tf.function(lambda: tf.concat([_losses(model, *part) for part in parts], 0), autograph=False)
    made.rewind()
    losses: list[float] | None = None
    # Compiled by XLA, a loss may give NaN where it raises an error here, as for a label that is no class.
    with alone(model), contextlib.suppress(tf.errors.InvalidArgumentError):
        losses = of_rows.get_concrete_function()().numpy().tolist()
    made.rewind()
    return losses


def cut(value: object, first: int, end: int) -> Any:
    """Return some rows of a batch."""
    return tf.nest.map_structure(lambda part: None if part is None else part[first:end], value)


def chosen(value: object, rows: list[int]) -> Any:
    """Return chosen rows of a batch."""
    return tf.nest.map_structure(lambda part: None if part is None else tf.gather(part, rows), value)


def _losses(model: keras.Model, x: Any, y: Any, weights: Any) -> tf.Tensor:
    """Return the losses of the rows of a share."""
    count = tf.nest.flatten(x)[0].shape[0]
    if not count:
        return tf.zeros([0])
    outputs = model(x, training=True)

    def of_row(row: tf.Tensor) -> tf.Tensor:
        def one(tensor: Any) -> Any:
            return tensor[row : row + 1]

        def own(part: object) -> Any:
            return None if part is None else tf_internals.with_attributes(part, one)

        given = [tf.nest.map_structure(own, part) for part in (x, y, outputs, weights)]
        return tf.cast(tf.reduce_sum(model.compute_loss(*given, training=True)), tf.float32)

    return tf.map_fn(of_row, tf.range(count), fn_output_signature=tf.float32)


def alone(model: keras.Model) -> contextlib.AbstractContextManager[None]:
    """Return the context in which one process computes with a model as a single replica."""
    extended = extended_of(model)
    return extended.without_peers() if extended is not None else contextlib.nullcontext()
