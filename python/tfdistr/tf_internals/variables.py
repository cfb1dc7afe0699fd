"""The devices of Keras's variables."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


def device_of(variable: Any) -> str:
    """Return the full name of the device of a variable. The variable is of Keras or of TensorFlow.

    (``Variable.value`` gives a tensor where Keras casts to 16 bits; ``Variable._value`` never does.)
    """
    return str((variable._value if isinstance(variable, keras.Variable) else variable).device)


def make_again(variable: keras.Variable) -> None:
    """Replace the TensorFlow variable inside a Keras variable by a new one.

    Keras cannot choose the device of a variable, and TensorFlow cannot move a variable.
    """
    value: tf.Variable = variable._value
    variable._value = tf.Variable(
        value.read_value(), dtype=value.dtype, trainable=value.trainable, name=variable.name
    )
