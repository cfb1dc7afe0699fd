"""A scope for a step on one share of a batch, which collects changes of Keras variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

#: The distance of the seeds of two workers: a prime that no user is likely to add to a seed.
BETWEEN_SEEDS = 1_000_003


class ShareScope(keras.StatelessScope):  # type: ignore[misc]
    """A scope in which variables keep their values, and new values are collected.

    * A variable that sums (of a metric) begins with zero, so that its new value is the share's part.
    * A generator of random numbers begins with the seed of the virtual worker.
    * Other variables have their real values.

    (A variable with no value in the scope must be its TensorFlow variable, ``Variable._value``: regularizers
    get what ``get_current_value`` returns. A generator's variable is known by its name only.)

    Args:
        virtual_worker: The number of the virtual worker, a scalar.
        protected: Variables that the step may not change.
        on_change: Called with such a variable if the step changes it.
        on_use: Called with a variable that the step reads although an optimizer is to change it.
    """

    def __init__(
        self,
        virtual_worker: tf.Tensor,
        protected: Sequence[Any],
        on_change: Callable[[Any], None],
        on_use: Callable[[Any], None],
    ) -> None:
        super().__init__(collect_losses=True)
        self._virtual_worker = virtual_worker
        self._protected = {id(variable) for variable in protected}
        self._on_change, self._on_use = on_change, on_use
        self._begun: dict[int, Any] = {}
        #: The ids of the variables that an optimizer is to change.
        self.awaited: set[int] = set()
        #: The variables with new values, in the order of their first change, and their numbers of changes.
        self.changed: list[Any] = []
        self.changes: dict[int, int] = {}

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Collect the new value of a variable."""
        variable, _ = update
        if id(variable) in self._protected:
            self._on_change(variable)
        if id(variable) not in self.changes:
            self.changed.append(variable)
        self.changes[id(variable)] = self.changes.get(id(variable), 0) + 1
        super().add_update(update)

    def get_current_value(self, variable: Any) -> Any:
        """Return the value of a variable for this share."""
        if id(variable) in self.awaited:
            self._on_use(variable)
        known = super().get_current_value(variable)
        if known is not None:
            return known
        if id(variable) not in self._begun:
            self._begun[id(variable)] = self._first_value(variable)
        return self._begun[id(variable)]

    def begun(self, variable: Any) -> Any:
        """Return the value with which the share began; None if it did not read the variable."""
        return self._begun.get(id(variable))

    def _first_value(self, variable: Any) -> Any:
        value = variable._value
        if value is None:
            return None
        if variable.aggregation == "sum":
            return tf.zeros(variable.shape, variable.dtype)
        if is_seed(variable):
            distance = tf.cast(self._virtual_worker, value.dtype) * tf.cast(BETWEEN_SEEDS, value.dtype)
            return tf.convert_to_tensor(value) + tf.stack([distance, tf.zeros_like(distance)])
        return value


def is_seed(variable: Any) -> bool:
    """Return whether a Keras variable is the state of a random number generator."""
    return variable.name == "seed_generator_state" and tuple(variable.shape) == (2,)


def logs_are_metrics(model: keras.Model, logs: Any) -> bool:
    """Return whether Keras's loop takes ``logs`` of a step for the values of all metrics."""
    return isinstance(logs, dict) and set(logs) == set(model.get_metrics_result())
