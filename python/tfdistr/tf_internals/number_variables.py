"""Variables of strategies that turn into numbers, as the variables of Keras do without a strategy.

TensorFlow's distributed variables (not exported) have no ``float()`` and no ``int()``, and NumPy cannot read
those of metrics. Callbacks use all of these: ``float(self.model.optimizer.learning_rate)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tensorflow.python.distribute import values as _values


class _Number:
    """A mixin with the conversions of a ``tf.Variable``."""

    def __float__(self) -> float:
        return float(self.numpy())  # type: ignore[attr-defined]

    def __int__(self) -> int:
        return int(self.numpy())  # type: ignore[attr-defined]

    def __complex__(self) -> complex:
        return complex(self.numpy())  # type: ignore[attr-defined]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)  # type: ignore[attr-defined]


class MirroredVariable(_Number, _values.MirroredVariable):  # type: ignore[misc]
    """A variable with the same value on all replicas."""


class SyncOnReadVariable(_Number, _values.SyncOnReadVariable):  # type: ignore[misc]
    """A variable whose value is the sum or the mean over the replicas."""


_WITH_NUMBERS = {_values.MirroredVariable: MirroredVariable, _values.SyncOnReadVariable: SyncOnReadVariable}


def give_numbers(variable: object) -> object:
    """Return ``variable``. A distributed variable now turns into numbers; others are unchanged.

    The class of this one object changes, because TensorFlow's function that makes it knows only its own.
    """
    variable.__class__ = _WITH_NUMBERS.get(type(variable), type(variable))
    return variable
