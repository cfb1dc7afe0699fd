"""Where the variables of Keras are."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


def device_of(variable: Any) -> str:
    """The full name of the device that holds a variable, of Keras or of TensorFlow.

    (``Variable.value`` gives a tensor where Keras casts to 16 bits; ``Variable._value`` never does.)
    """
    return str((variable._value if isinstance(variable, keras.Variable) else variable).device)


def make_again(variable: keras.Variable) -> None:
    """Put a new variable of TensorFlow in the place of that which a variable of Keras has.

    Keras has no way to say where a variable is to be, and one of TensorFlow cannot be moved.
    """
    value: tf.Variable = variable._value
    variable._value = tf.Variable(
        value.read_value(), dtype=value.dtype, trainable=value.trainable, name=variable.name
    )
