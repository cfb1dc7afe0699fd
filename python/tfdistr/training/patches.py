"""Changes of a copy of a model, which can be sent to other processes."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import cloudpickle
import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.training.plain_values import as_array, untracked


class Step(NamedTuple):
    """One step of the way from a part of a model to a value in it."""

    kind: Literal["attribute", "item", "policy"]
    key: Any


class Pickled(NamedTuple):
    """An object as bytes, of which each copy of a model gets its own."""

    content: bytes


class Patch(NamedTuple):
    """A value, and its place in a model.

    Attributes:
        root: The number of the part of the model.
        steps: The way to the value from there.
        value: The value; for a policy its configuration, for tensors and variables an array.
        is_tensor: Whether the value is a tensor.
    """

    root: int
    steps: tuple[Step, ...]
    value: Any
    is_tensor: bool = False

    @classmethod
    def of(cls, root: int, steps: tuple[Step, ...], value: Any) -> Patch:
        """Return the patch that puts this value at a place."""
        if steps[-1].kind == "policy":
            return cls(root, steps, keras.dtype_policies.serialize(value))
        array = as_array(value)
        return cls(root, steps, untracked(value) if array is None else array, isinstance(value, tf.Tensor))

    @classmethod
    def of_object(cls, root: int, steps: tuple[Step, ...], value: Any) -> Patch | None:
        """Return the patch that puts a copy of an object at a place; None if it cannot be pickled."""
        try:
            return cls(root, steps, Pickled(cloudpickle.dumps(value)))
        except Exception:  # the pickling code of an object can raise anything
            return None

    def apply(self, roots: Sequence[Any]) -> None:
        """Put the value at its place in a copy.

        Raises:
            Exception: The place does not exist, or refuses the value.
        """
        *way, last = self.steps
        holder = roots[self.root]
        for step in way:
            holder = vars(holder)[step.key] if step.kind == "attribute" else holder[step.key]
        if last.kind == "policy":
            tf_internals.set_policy(holder, keras.dtype_policies.deserialize(self.value))
            return
        held = vars(holder).get(last.key) if last.kind == "attribute" else None
        if isinstance(held, tf.Variable | keras.Variable):
            held.assign(self.value)
            return
        value = tf.constant(self.value) if self.is_tensor else self.value
        if isinstance(value, Pickled):
            value = pickle.loads(value.content)
        if last.kind == "attribute":
            setattr(holder, last.key, value)
        else:
            holder[last.key] = value


def path_of(steps: Sequence[Step]) -> str:
    """Return the place of a value as code."""
    words = [f"[{step.key!r}]" if step.kind == "item" else f".{step.key}" for step in steps]
    return f"`{''.join(words).removeprefix('.')}`"
