"""Building blocks for a custom training loop: the share of the data, and losses that add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tfdistr.errors import ArgumentError
from tfdistr.strategies.rank import rank_of_process
from tfdistr.utils.arguments import check_int
from tfdistr.utils.describe import ValueOfR, describe


def distribute(dataset: tf.data.Dataset, strategy: tf.distribute.Strategy | None = None) -> Any:
    """Give this worker's part of every batch of a dataset.

    The parts are for a ``for`` loop inside or outside a ``tf.function``. All workers get the same number of
    batches, in the order of the dataset. If a batch has fewer rows than there are workers, some workers get a
    batch with no rows. The losses and metrics stay right, but TensorFlow's convolution and pooling cannot
    learn from no rows. ``batch(drop_remainder=True)`` avoids it.

    Args:
        dataset: A ``tf.data.Dataset`` in batches of the **global** size, in the same order on all
            workers: ``shuffle`` it with a seed.
        strategy: The strategy; by default, the strategy whose scope the call is in.

    Returns:
        The strategy's distributed dataset. Pass its elements on as ``strategy.run(step, args=(batch,))``.

    Raises:
        ArgumentError: ``dataset`` is no dataset, or there is no strategy although there are several workers.
        ClusterConfigError: TF_CONFIG is not valid.
        DataShardError: The dataset cannot be split over the workers.

    Example:
        >>> batches = tfdistr.distribute(dataset.shuffle(1000, seed=1).batch(64), strategy)
        >>> losses = [strategy.run(train_step, args=(batch,)) for batch in batches]
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise ArgumentError(
            "`dataset` must be a tf.data.Dataset.",
            received=describe(dataset),
            fix="Make one, for example with tf.data.Dataset.from_tensor_slices().batch().",
        )
    if strategy is None:
        strategy = _current_strategy()
    if not isinstance(strategy, tf.distribute.Strategy):
        raise ArgumentError(
            "`strategy` must be a strategy, such as make_strategy() returns.",
            received=describe(strategy),
            fix="Pass the strategy itself, or call distribute() inside `with strategy.scope():`.",
        )
    return strategy.experimental_distribute_dataset(dataset)


def _current_strategy() -> tf.distribute.Strategy:
    """Return the strategy of the current scope. Without a scope, one worker gets TensorFlow's default."""
    known = rank_of_process()
    if known.num_workers > 1 and not tf.distribute.has_strategy():
        raise ArgumentError(
            "distribute() needs the strategy, or every worker would get all rows.",
            received=f"no strategy, and {known.num_workers} workers, from {known.by}",
            fix="Pass strategy=strategy, or call it inside `with strategy.scope():`.",
        )
    return tf.distribute.get_strategy()


_WEIGHTS = "`sample_weight` must have the shape of `losses`, or of its first dimensions."


def average_loss(losses: Any, sample_weight: Any = None, global_batch_size: Any = None) -> tf.Tensor:
    """Compute this replica's part of the mean loss of the global batch.

    Call it in the function that ``strategy.run`` runs. The sum of its values over the replicas is the value
    of one worker, and so is the sum of their gradients, also if shares of a batch differ in size or have no
    rows. Without a strategy it is the mean. On N replicas, ``tf.reduce_mean(losses)`` in its place gives N
    times the gradients, because the optimizer sums them. If ``tf.function`` traces such a step, a warning
    says so. In a step of Keras's ``fit`` use ``compute_loss`` instead: tfdistr's strategy weighs its
    gradients.

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
        A scalar of type float32, or float64 if ``losses`` is, because sums of float16 would overflow. 0 if
        there are no rows.

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


def regularization_loss(losses: object) -> tf.Tensor:
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


def _in_full_precision(losses: object, name: str) -> tf.Tensor:
    tensor = _tensor(losses, name)
    return tensor if tensor.dtype == tf.float64 else tf.cast(tensor, tf.float32)


def _tensor(value: object, name: str) -> tf.Tensor:
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


def _weights(sample_weight: object, losses: tf.Tensor) -> tf.Tensor:
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
