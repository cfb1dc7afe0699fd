"""The steps of an epoch, from the number of examples and the batch size.

The rules for an epoch, here and in ``distributed_fit()``:

* ``batch_size`` is the size of the **global** batch. The workers share each batch, so their number changes
  neither the number of steps nor the examples of a step.
* An epoch is one pass over the examples. Its last batch has the examples that are left; ``drop_remainder``
  drops it if it is not full. With shuffling, other examples are dropped in every epoch.
* With ``steps_per_epoch`` the data is repeated, and an epoch ends after this number of steps. Passes continue
  over the ends of epochs, but no batch has examples of two passes: each pass may end with a shorter batch.
  With ``drop_remainder`` it ends with its last full batch.
* ``drop_remainder`` is for training; validation uses every example.
"""

from __future__ import annotations

from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import check_bool, check_int


def steps_per_epoch(n_examples: int, batch_size: int, drop_remainder: bool = False) -> int:
    """Compute the number of steps in an epoch.

    An epoch is one pass over the examples. The number of workers does not change the number of steps. Some
    texts use the formula ``len(x) // batch_size * num_workers``, which is wrong. Every step uses one global
    batch, and each worker has a part of it. With 1,000 examples, a global batch of 256 and 4 workers, an
    epoch has 4 steps. The formula gives 12, in which every example is used three times. If ``batch_size`` is
    the batch of each worker, 64, the formula gives 60 steps for a pass of 4.

    Args:
        n_examples: Number of examples.
        batch_size: Examples of a **global** batch: the batch of each worker times the number of workers.
        drop_remainder: Whether a last batch that is not full is dropped.

    Returns:
        The number of batches: rounded up, or down with ``drop_remainder``.

    Raises:
        ArgumentError: An argument is not of the form above, or there would be no step.

    Example:
        >>> tfdistr.steps_per_epoch(1000, 256), tfdistr.steps_per_epoch(1000, 256, drop_remainder=True)
        (4, 3)
    """
    examples, size = check_int("n_examples", n_examples), check_int("batch_size", batch_size)
    if not check_bool("drop_remainder", drop_remainder):
        return -(-examples // size)
    if examples < size:
        raise ArgumentError(
            "With `drop_remainder` there must be at least one full batch, or there is nothing to train on.",
            received=f"{examples} examples, a global batch of {size}",
            fix=f"Use a batch size of at most {examples}, or leave `drop_remainder` out.",
        )
    return examples // size
