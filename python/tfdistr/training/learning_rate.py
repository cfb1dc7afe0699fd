"""The learning rate as a function of the number of workers.

It is the learning rate of the user's optimizer, times the factor of ``scaled_learning_rate``. During the
first ``warmup_epochs`` epochs it rises to this value in equal parts from step to step; see ``WarmUp``.
"""

from __future__ import annotations

import math

from tfdistr.utils.arguments import check_choice, check_int, check_positive

LEARNING_RATE_SCALES = ("none", "linear", "sqrt")


def scaled_learning_rate(learning_rate: float, num_workers: int, scale: str = "linear") -> float:
    """Compute the learning rate for a global batch that grows with the number of workers.

    The learning rate has to grow if each worker keeps its batch size (`per_worker`). With a
    fixed global batch, the steps are the steps of one worker, and the learning rate stays.

    Args:
        learning_rate: The learning rate of one worker, above 0.
        num_workers: Number of workers.
        scale: "linear" multiplies it by the number of workers, "sqrt" by the square root of this number,
            "none" leaves it.

    Raises:
        ArgumentError: An argument is not of the form above.

    Source: P. Goyal et al. (2017), "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour"
    (https://arxiv.org/abs/1706.02677), for "linear"; A. Krizhevsky (2014), "One weird trick for parallelizing
    convolutional neural networks" (https://arxiv.org/abs/1404.5997), for "sqrt".

    Example:
        >>> tfdistr.scaled_learning_rate(0.1, num_workers=4), tfdistr.scaled_learning_rate(0.1, 4, "sqrt")
        (0.4, 0.2)
    """
    rate = check_positive("learning_rate", learning_rate)
    return rate * learning_rate_factor(num_workers, scale)


def learning_rate_factor(num_workers: int, scale: str, *, name: str = "scale") -> float:
    """Return the factor for the learning rate; ``name`` is the name of the argument ``scale`` in errors."""
    workers = check_int("num_workers", num_workers)
    factors = {"none": 1.0, "linear": float(workers), "sqrt": math.sqrt(workers)}
    return factors[check_choice(name, scale, LEARNING_RATE_SCALES)]
