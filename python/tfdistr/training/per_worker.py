"""A batch size for each worker, and the learning rate that belongs to it."""

from __future__ import annotations

import math

import attrs

from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import argument, check_choice, check_int, check_positive
from tfdistr.utils.describe import call_text

LEARNING_RATE_SCALES = ("none", "linear", "sqrt")


@attrs.frozen(kw_only=True)
class PerWorker:
    """A batch size for each worker. `per_worker` describes the arguments."""

    batch_size: int = argument(check_int, "batch_size", default=attrs.NOTHING)
    scale_learning_rate: str = argument(
        check_choice, "scale_learning_rate", LEARNING_RATE_SCALES, default="none"
    )
    warmup_epochs: int = argument(check_int, "warmup_epochs", default=0, minimum=0)

    def __str__(self) -> str:
        return call_text("per_worker", self)

    def __attrs_post_init__(self) -> None:
        if self.warmup_epochs and self.scale_learning_rate == "none":
            raise ArgumentError(
                "`warmup_epochs` needs a scaled learning rate.",
                received=f'warmup_epochs={self.warmup_epochs}, scale_learning_rate="none"',
                fix='Pass scale_learning_rate="linear" or "sqrt" too, or leave `warmup_epochs` out.',
            )


def per_worker(batch_size: int, *, scale_learning_rate: str = "none", warmup_epochs: int = 0) -> PerWorker:
    """Give each worker a batch of its own size, so that the global batch grows with the number of workers.

    Pass it to `distributed_fit` as ``batch_size``. A number there is the size of the global batch, which the
    number of workers does not change.

    Args:
        batch_size: Examples in the batch of each worker.
        scale_learning_rate: "linear" multiplies the learning rate by the number of workers, "sqrt" by the
            square root of that number, "none" leaves it; see `scaled_learning_rate`.
        warmup_epochs: Number of epochs over which the learning rate rises, step by step, to its scaled value;
            see ``WarmUp``.

    Returns:
        The batch size, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: An argument does not have this form, or ``warmup_epochs`` has nothing to rise to.

    Example:
        >>> per_worker(64, scale_learning_rate="linear", warmup_epochs=5).batch_size
        64
    """
    return PerWorker(**locals())


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


def learning_rate_factor(num_workers: int, scale: str) -> float:
    """Return the factor for the learning rate."""
    workers = check_int("num_workers", num_workers)
    factors = {"none": 1.0, "linear": float(workers), "sqrt": math.sqrt(workers)}
    return factors[check_choice("scale", scale, LEARNING_RATE_SCALES)]
