"""Changes of a copy of a model, which can be sent to other processes."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import cloudpickle
import keras
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.training.model_copies.plain_values import array_of, untracked

_VARIABLES = (tf.Variable, keras.Variable)


class Attribute(str):
    """A step from an object to its attribute. Other steps are keys of lists and dictionaries."""

    __slots__ = ()


class Patch(NamedTuple):
    """A value, and its place in a model.

    Attributes:
        root: The number of the part of the model.
        steps: The way to the value from there.
        value: The value, or the array of a variable, as bytes: each copy of the model gets its own object.
    """

    root: int
    steps: tuple[Any, ...]
    value: bytes

    @classmethod
    def of(cls, root: int, steps: tuple[object, ...], value: object) -> Patch | None:
        """Return the patch that puts this value at a place; None if it cannot be pickled."""
        try:
            content = array_of(value) if isinstance(value, _VARIABLES) else untracked(value)
            return cls(root, steps, cloudpickle.dumps(content))
        except Exception:  # the pickling code of an object can raise anything
            return None

    def apply(self, roots: Sequence[Any]) -> None:
        """Put the value at its place in a copy."""
        *way, last = self.steps
        holder, value = roots[self.root], pickle.loads(self.value)
        for step in way:
            holder = vars(holder)[step] if isinstance(step, Attribute) else holder[step]
        held = vars(holder).get(last) if isinstance(last, Attribute) else None
        if isinstance(held, _VARIABLES):
            held.assign(value)
        elif last == "dtype_policy" and isinstance(value, keras.DTypePolicy):
            tf_internals.set_policy(holder, value)
        elif isinstance(last, Attribute):
            setattr(holder, last, value)
        else:
            holder[last] = value


def attribute_path(steps: Sequence[object]) -> str:
    """Return the place of a value as code."""
    words = [f".{step}" if isinstance(step, Attribute) else f"[{step!r}]" for step in steps]
    return f"`{''.join(words).removeprefix('.')}`"
