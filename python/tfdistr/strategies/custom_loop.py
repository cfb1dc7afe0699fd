"""The share of the data for a custom training loop under a strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tfdistr.errors import ArgumentError
from tfdistr.strategies.rank import rank_of_process
from tfdistr.utils.describe import describe

if TYPE_CHECKING:
    import tensorflow as tf


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
    import tensorflow as tf

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
    import tensorflow as tf

    known = rank_of_process()
    if known.num_workers > 1 and not tf.distribute.has_strategy():
        raise ArgumentError(
            "distribute() must know the strategy, or every worker would get all rows.",
            received=f"no strategy, and {known.num_workers} workers, by {known.by}",
            fix="Pass strategy=strategy, or call it inside `with strategy.scope():`.",
        )
    return tf.distribute.get_strategy()
