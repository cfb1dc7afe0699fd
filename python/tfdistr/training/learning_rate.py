"""The learning rate of a training: scaled, at once or over its first epochs."""

from __future__ import annotations

import keras

from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import check_int, check_positive


class WarmUp(keras.callbacks.Callback):  # type: ignore[misc]
    """Raises the learning rate in equal parts, step by step, over the first epochs of ``fit``.

    With S steps in an epoch, step s (from 0) of epoch e (from 0) has the learning rate
    ``initial + (target - initial) * (e * S + s) / (epochs * S)``: the first step has ``initial``, the first
    step after the warm-up has ``target``. From then on the callback leaves the learning rate alone. During
    the warm-up it replaces what other callbacks set. Put it before them in the list.

    With ``steps_per_execution`` above 1, the steps of one execution have the rate of their first step. If the
    number of steps is not known when training begins (a dataset of unknown length), the first epoch keeps the
    rate of its first step, and the steps of the first epoch are counted.

    Args:
        initial: The learning rate of the first step.
        target: The learning rate after the warm-up.
        epochs: Number of epochs of the warm-up.

    Raises:
        ArgumentError: An argument is not of the form above. When training begins: the optimizer has a
            learning-rate schedule instead of a number.

    Source: P. Goyal et al. (2017), "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour"
    (https://arxiv.org/abs/1706.02677), section 2.2.

    Example:
        >>> rate = tfdistr.scaled_learning_rate(0.1, num_workers=4)
        >>> model.compile(keras.optimizers.SGD(rate), "mse")
        >>> history = model.fit(x, y, epochs=10, callbacks=[tfdistr.WarmUp(0.1, rate, epochs=5)])
    """

    decides = False  # needs no metrics of other workers
    async_safe = True  # steps may be counted on Keras's own thread

    def __init__(self, initial: float, target: float, epochs: int) -> None:
        super().__init__()
        self.initial = check_positive("initial", initial)
        self.target = check_positive("target", target)
        self.epochs = check_int("epochs", epochs)
        self._epoch = 0
        self._steps: int | None = None
        self._counted = 0

    def on_train_begin(self, logs: object = None) -> None:
        """Read the number of steps, and check the learning rate."""
        self._steps = (self.params or {}).get("steps")
        read_learning_rate(
            self.model.optimizer,
            rule="WarmUp needs a learning rate that is a number.",
            fix="Pass a number to the optimizer, or let the schedule start with the warm-up.",
        )

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        """Record the epoch: a resumed training does not start with the first epoch."""
        self._epoch, self._counted = epoch, 0

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        """Set the learning rate of this step."""
        if self._epoch < self.epochs:
            self.model.optimizer.learning_rate = self.learning_rate(self._epoch, batch)

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        """Count the steps."""
        self._counted = batch + 1

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:
        """Set the target after the last epoch of the warm-up, before other callbacks set their rates."""
        self._steps = self._steps or self._counted
        if epoch + 1 == self.epochs:
            self.model.optimizer.learning_rate = self.target

    def learning_rate(self, epoch: int, step: int) -> float:
        """Return the learning rate of a step of the warm-up; both are counted from 0."""
        done = (epoch + (step / self._steps if self._steps else 0)) / self.epochs
        return self.initial + (self.target - self.initial) * done


def scale_learning_rate(
    optimizer: keras.optimizers.Optimizer | None, factor: float, warmup_epochs: int = 0
) -> list[keras.callbacks.Callback]:
    """Multiply the learning rate of an optimizer by ``factor``, at once or over some epochs."""
    if optimizer is None or factor == 1.0:
        return []
    rate = read_learning_rate(
        optimizer,
        rule="`scale_learning_rate` needs a learning rate that is a number.",
        fix="Leave `scale_learning_rate` out, and scale the schedule in the model function.",
    )
    optimizer.learning_rate = rate * factor
    return [WarmUp(rate, rate * factor, warmup_epochs)] if warmup_epochs else []


def read_learning_rate(optimizer: keras.optimizers.Optimizer, *, rule: str, fix: str) -> float:
    """Return the learning rate of an optimizer, if it is a number that can be set."""
    rate = optimizer.learning_rate
    if not isinstance(rate, keras.Variable):  # the value of a schedule or a function
        raise ArgumentError(rule, received="an optimizer with a learning-rate schedule", fix=fix)
    return float(keras.ops.convert_to_numpy(rate))
