"""Losses for a custom training loop, such that the workers' gradients add up to one worker's gradients.

Keras's ``optimizer.apply`` **sums** the gradients of the replicas when it is called in the replica function.
So the sum of the replicas' losses must be the loss of one worker:

* A replica divides the losses of its rows by the examples of the *global* batch, not of its share.
* Losses that do not depend on the rows, such as L1 and L2, exist on every replica: each gives its part.

Source: TensorFlow's guide "Custom training with tf.distribute.Strategy"
(https://www.tensorflow.org/tutorials/distribute/custom_training).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import check_int
from tfdistr.utils.describe import ValueOfR, describe

_WEIGHTS = "`sample_weight` must have the shape of `losses`, or of its first dimensions."


def average_loss(losses: Any, sample_weight: Any = None, global_batch_size: Any = None) -> tf.Tensor:
    """Compute this replica's part of the mean loss of the global batch.

    Call it in the function that ``strategy.run`` runs. The sum of its values over the replicas is the value
    of one worker, and so is the sum of their gradients, also if shares of a batch differ in size or have no
    rows. Without a strategy it is the mean. In a step of Keras's ``fit`` use ``compute_loss`` instead:
    tfdistr's strategy weighs its gradients.

    Args:
        losses: Tensor of shape ``(rows, ...)``: the losses of this replica's rows, as a loss with
            ``reduction="none"`` returns them. Further dimensions, such as the pixels of an image, are
            averaged: the loss does not grow with the size of the image.
        sample_weight: Factors for the losses: of shape ``(rows,)``, or with further dimensions of
            ``losses``. As in Keras, the weighted losses are divided by the number of examples, not by the
            sum of the weights.
        global_batch_size: Number of examples of the global batch, the same on all replicas: a whole number
            or an integer scalar tensor. By default, the replicas count the examples by one all-reduce of one
            number, so that a shorter last batch is right, too.

    Returns:
        A scalar of type float32, or float64 if ``losses`` is: sums of float16 would overflow. 0 if there
        are no rows.

    Raises:
        ArgumentError: An argument is not of the form above, or the call is in a strategy's scope but not in
            the function that ``strategy.run`` runs.

    Source: ``tf.nn.compute_average_loss``, which takes the local rows times the number of replicas as the
    global batch, and sums the further dimensions.

    Example:
        >>> def train_step(batch):
        ...     x, y = batch
        ...     with tf.GradientTape() as tape:
        ...         losses = keras.losses.mean_squared_error(y, model(x, training=True))
        ...         loss = tfdistr.average_loss(losses) + tfdistr.regularization_loss(model.losses)
        ...     gradients = tape.gradient(loss, model.trainable_variables)
        ...     optimizer.apply(gradients, model.trainable_variables)
        ...     return loss
    """
    replicas = _replicas("average_loss")
    losses = _in_full_precision(losses, "losses")
    if losses.shape.rank == 0:
        raise ArgumentError(
            "`losses` must hold one loss for each example.",
            received="a single number: a mean over these rows, or a sum",
            fix='Use a loss with reduction="none", such as keras.losses.MeanSquaredError(reduction="none").',
        )
    if sample_weight is not None:
        losses *= _weights(sample_weight, losses)
    of_examples = tf.reduce_mean(losses, axis=tf.range(1, tf.rank(losses)))
    if global_batch_size is None:
        examples = tf.cast(tf.shape(losses)[0], losses.dtype)
        if replicas > 1:
            context = tf.distribute.get_replica_context()
            examples = context.all_reduce(tf.distribute.ReduceOp.SUM, examples)
    else:
        examples = tf.cast(_size(global_batch_size), losses.dtype)
    return tf.math.divide_no_nan(tf.reduce_sum(of_examples), examples)


def regularization_loss(losses: Any) -> tf.Tensor:
    """Compute this replica's part of a loss that every replica has in full, such as L1 and L2 of the weights.

    Call it in the function that ``strategy.run`` runs. The sum of its values over the replicas is the value
    of one worker, and so is the sum of their gradients. Activity regularizers in ``model.losses`` are means
    over a replica's rows. They are exact if all shares have the same size.

    Args:
        losses: ``model.losses``, any list of scalars (which may be empty), or a tensor, which is summed.

    Returns:
        A scalar of type float32, or float64 if a loss is.

    Raises:
        ArgumentError: ``losses`` is not of the form above, or the call is in a strategy's scope but not in
            the function that ``strategy.run`` runs.

    Source: ``tf.nn.scale_regularization_loss``.

    Example:
        >>> with strategy.scope():
        ...     weight = tf.Variable(3.0)
        >>> parts = strategy.run(lambda: tfdistr.regularization_loss([0.5 * weight**2]))
        >>> float(strategy.reduce("SUM", parts, axis=None))
        4.5
    """
    replicas = _replicas("regularization_loss")
    parts = list(losses) if isinstance(losses, Sequence) else [losses]
    sums = [tf.reduce_sum(_in_full_precision(part, "losses")) for part in parts]
    kind = tf.float64 if any(part.dtype == tf.float64 for part in sums) else tf.float32
    return tf.add_n([tf.zeros([], kind), *(tf.cast(part, kind) for part in sums)]) / replicas


def _replicas(function: str) -> int:
    """Return the number of replicas whose gradients are summed."""
    if tf.distribute.in_cross_replica_context():
        raise ArgumentError(
            f"{function}() must be called in the function that strategy.run() runs on the replicas.",
            received="a call in the scope of the strategy, outside of a replica",
            fix="Put the forward pass, the losses and optimizer.apply() into one function, and call "
            "strategy.run(function, args=(batch,)).",
        )
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def _in_full_precision(losses: Any, name: str) -> tf.Tensor:
    tensor = _tensor(losses, name)
    return tensor if tensor.dtype == tf.float64 else tf.cast(tensor, tf.float32)


def _tensor(value: Any, name: str) -> tf.Tensor:
    try:
        tensor = tf.convert_to_tensor(value)
        valid = tensor.dtype != tf.string
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ArgumentError(
            f"`{name}` must hold numbers.",
            received=repr(value) if isinstance(value, ValueOfR | list | tuple) else describe(value),
            fix="Convert it to a tensor or an array of numbers.",
        )
    return tensor


def _weights(sample_weight: Any, losses: tf.Tensor) -> tf.Tensor:
    """Return the weights, with a dimension of 1 for each dimension of ``losses`` that they lack."""
    weights = tf.cast(_tensor(sample_weight, "sample_weight"), losses.dtype)
    rank = weights.shape.rank
    if rank == 0 or (rank is not None and not losses.shape[:rank].is_compatible_with(weights.shape)):
        raise ArgumentError(
            _WEIGHTS,
            received=f"weights of shape {weights.shape}, losses of shape {losses.shape}",
            fix="Give one weight for each row, in one dimension: tf.reshape(sample_weight, [-1]).",
        )
    shape, count = tf.shape(weights), tf.rank(weights)
    # The number of rows is often known only when the step runs; one weight would silently go to all rows.
    same = tf.debugging.assert_equal(shape, tf.shape(losses)[:count], _WEIGHTS)
    with tf.control_dependencies([same] if same is not None else []):
        return tf.reshape(weights, tf.concat([shape, tf.ones([tf.rank(losses) - count], tf.int32)], 0))


def _size(size: Any) -> Any:
    if not tf.is_tensor(size):
        return check_int("global_batch_size", size)
    if not size.dtype.is_integer or size.shape.rank != 0:
        raise ArgumentError(
            "`global_batch_size` must be one whole number.",
            received=f"a tensor of type {size.dtype.name} and shape {size.shape}",
            fix="Pass the batch size that the dataset was batched with, or leave it out.",
        )
    return size
