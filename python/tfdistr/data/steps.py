"""Steps of an epoch: what follows from the number of examples and the batch.

How an epoch is counted, here and in ``distributed_fit()``:

* ``batch_size`` is the **global** batch. The workers share each batch, so their number changes neither the
  number of steps nor which examples a step uses.
* An epoch is one pass over the examples. Its last batch has what is left, or is dropped with
  ``drop_remainder``; with shuffling, other examples are dropped in every epoch.
* With ``steps_per_epoch`` the data is repeated and an epoch ends after so many steps. Passes go on over the
  ends of epochs, but no batch has examples of two passes: each pass ends with a shorter batch, or with
  ``drop_remainder`` with its last full one.
* ``drop_remainder`` is for training; validation uses every example.
"""

from __future__ import annotations

from tfdistr._utils.arguments import flag, whole
from tfdistr.errors import ArgumentError


def steps_per_epoch(n_examples: int, batch_size: int, drop_remainder: bool = False) -> int:
    """Number of steps in one pass over the examples, with any number of workers.

    The formula ``len(x) // batch_size * num_workers``, which can be read elsewhere, is wrong. Every step uses
    one global batch, of which each worker has a part. With 1,000 examples, a global batch of 256 and 4
    workers an epoch has 4 steps; the formula gives 12, in which every example is used three times. Where
    ``batch_size`` is meant for each worker, at 64, it gives 60 steps for a pass of 4.

    Args:
        n_examples: Number of examples.
        batch_size: Examples of a **global** batch. Multiply what each worker has by the number of workers.
        drop_remainder: Whether a last batch that is not full is dropped.

    Returns:
        The number of batches: rounded up, or down with ``drop_remainder``.

    Raises:
        ArgumentError: An argument is not of the form above, or there would be no step at all.

    Example:
        >>> tfdistr.steps_per_epoch(1000, 256), tfdistr.steps_per_epoch(1000, 256, drop_remainder=True)
        (4, 3)
    """
    examples, size = whole("n_examples", n_examples), whole("batch_size", batch_size)
    if not flag("drop_remainder", drop_remainder):
        return -(-examples // size)
    if examples < size:
        raise ArgumentError(
            "With `drop_remainder` there must be at least one full batch, or there is nothing to train on.",
            received=f"{examples} examples, a global batch of {size}",
            fix=f"Use a batch size of at most {examples}, or leave `drop_remainder` out.",
        )
    return examples // size
