"""The rows of all workers, for a loss over the batch."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError
from tfdistr.strategies.exact.exchange import current_step
from tfdistr.utils.describe import describe


def gather(value: Any) -> tf.Tensor:
    """Gather the rows of all workers.

    For a loss that compares the examples of a batch with each other: a contrastive loss (SimCLR, CLIP), a
    balance term, a distance of distributions. Call it in the loss, in the model or in ``train_step``, in the
    steps of Keras's ``fit`` and of ``distributed_fit()``. Every worker then computes the loss of the whole
    batch, and the gradient is that of one worker, also if the rows are split unevenly.

    On one worker, outside of a strategy, and while Keras builds a model, it returns its input. With
    ``virtual_workers`` it gathers the rows of all of them.

    Args:
        value: A dense tensor of shape ``(rows, ...)``: numbers or logical values of this worker's rows.

    Returns:
        A tensor of the same type, with the rows of all workers in the order of the global batch. Its gradient
        goes back to these rows.

    Raises:
        ArgumentError: ``value`` is not of the form above, or the call is in the scope of a strategy with
            several workers, but not in a Keras step.

    Example:
        >>> def clip_loss(y_true, y_pred):
        ...     images, texts = tf.split(tfdistr.gather(y_pred), 2, axis=1)
        ...     logits = images @ tf.transpose(texts)
        ...     pairs = tf.range(tf.shape(logits)[0])
        ...     return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(pairs, logits))
        >>> float(clip_loss(None, tf.eye(2, 4)))
        0.5032044649124146
    """
    tensor = _rows(value)
    if tf_internals.keras_is_symbolic():
        return tensor
    step = current_step()
    if step is not None:
        return step.gather(tensor)
    replicas = tf.distribute.get_strategy().num_replicas_in_sync
    if replicas > 1:
        alone = tf.distribute.in_cross_replica_context()
        raise ArgumentError(
            "gather() must be called in a step of Keras's fit(), evaluate() or predict().",
            received=f"a call in {'the scope of a strategy' if alone else 'strategy.run()'}, for {replicas} "
            "replicas",
            fix="Call it in the loss, the model or train_step(). In a custom training loop call "
            "tf.distribute.get_replica_context().all_gather(value, axis=0) on the replicas.",
        )
    return tensor


def _rows(value: Any) -> tf.Tensor:
    dense = not isinstance(value, tf.RaggedTensor | tf.SparseTensor | tf.IndexedSlices)
    try:
        tensor = tf.convert_to_tensor(value) if dense else None
    except (TypeError, ValueError):
        tensor = None
    if tensor is None or tensor.shape.rank in (None, 0) or tensor.dtype == tf.string:
        raise ArgumentError(
            "`value` must be a dense tensor of numbers whose first dimension is the rows.",
            received=describe(value) if tensor is None else f"a {tensor.dtype.name} of shape {tensor.shape}",
            fix="Convert it: ragged rows by value.to_tensor(shape=...), a number to one for each row.",
        )
    return tensor
