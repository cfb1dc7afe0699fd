"""The gradients of a step of the user's own, summed over the replicas when a tape gives them.

A step may clip its gradients, scale them by their norm, or keep them in variables for later steps. One worker
does so with the gradient of the whole batch, and so does each worker here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError

#: Whether a gradient is that of a sum over the replica's rows; a tensor if this shows in the step only.
OfSum: TypeAlias = "bool | tf.Tensor"
Gradients = Callable[[Sequence[Any], OfSum], list[Any]]


class TapeSums:
    """The variables whose gradients a step has taken from a tape, and which are therefore summed.

    Args:
        total: Returns the gradients of the whole batch for those of this replica's rows. It also gets the
            result of ``of_sum``.
        alone: Returns, for the same arguments, gradients that the step will weight and sum. It is called
            where the replica cannot exchange values.
    """

    def __init__(
        self, total: Gradients, rows: tf.Tensor, alone: Gradients, can_exchange: Callable[[], bool]
    ) -> None:
        self._total, self._alone = total, alone
        self._can_exchange = can_exchange
        self._rows = rows
        self._graph = current_graph()
        self._variables: set[int] = set()
        self._places: dict[int, str] = {}  # of gradients that are not summed, by their variables
        self._place: str | None = None

    def of_sum(self, target: object, *, has_communicated: bool) -> OfSum:
        """Return whether a loss is a vector with a number for each of this replica's rows."""
        parts = tf.nest.flatten(target)
        if any(not part.shape.rank for part in parts):
            return False
        rows = tf.get_static_value(self._rows)
        if has_communicated and None in (rows, *(part.shape[0] for part in parts)):
            own = [tf.equal(tf.shape(part, tf.int64)[0], tf.cast(self._rows, tf.int64)) for part in parts]
            return tf.reduce_all(tf.stack(own))
        return all(part.shape[0] in (None, rows) for part in parts)

    def summed(self, sources: object, gradients: object, of_sum: OfSum) -> Any:
        """Return the gradients of a tape, summed where their sources are variables.

        A gradient that is a part of a loss, within another tape, is one of this replica's rows. So is a
        gradient in a function of the user: TensorFlow may call the function again without tracing it.
        """
        if tf_internals.tape_is_active():
            return gradients
        of, found = tf.nest.flatten(sources), tf.nest.flatten(gradients)
        kinds = tf.Variable | keras.Variable
        own = [i for i, source in enumerate(of) if isinstance(source, kinds) and found[i] is not None]
        variables = {_key(of[i]) for i in own}
        in_function = not tf_internals.is_part_of(current_graph(), self._graph)
        place = self._place or ("a tf.function" if in_function else None)
        if place is not None:
            self._places |= dict.fromkeys(variables, place)
            return gradients
        can_exchange = self._can_exchange()
        change = self._total if can_exchange else self._alone
        changed = change([found[i] for i in own], of_sum) if own else []
        for i, gradient in zip(own, changed, strict=True):
            found[i] = gradient
        if can_exchange:
            self._variables |= variables
        else:
            self._places |= dict.fromkeys(variables, "a branch or a loop")
        return tf.nest.pack_sequence_as(gradients, found)

    @contextlib.contextmanager
    def paused(self, place: str) -> Iterator[None]:
        """Sum no gradients within the context: they are those of single rows or outputs."""
        self._place, before = place, self._place
        try:
            yield
        finally:
            self._place = before

    def has(self, variable: Any) -> bool:
        """Return whether gradients of a variable are summed."""
        key = _key(variable)
        if key in self._variables and key in self._places:
            raise ArgumentError(
                "Cannot combine the gradients of a weight: some are those of the whole batch, and some "
                "those of one worker's rows.",
                received=f"gradients of {getattr(variable, 'path', variable.name)}, some from train_step() "
                f"itself and some from {self._places[key]} in it",
                fix="Take all of them with tape.gradient() in train_step() itself, and none in "
                f"{self._places[key]}.",
            )
        return key in self._variables


def current_graph() -> tf.Graph:
    """Return the graph that is being traced; None in eager mode."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()


def _key(variable: object) -> int:
    return id(variable.value if isinstance(variable, keras.Variable) else variable)
