"""A training that enlarges rounding: sums in another order end with weights that are visibly others.

The order is all that is different on several workers. The same training in float64 shows it: there the usual
bound holds. Virtual workers keep the order, so that the bound with them is 0 for both.
"""

import keras
import tensorflow as tf
from case import X, Y, case
from models import compiled, layers, losses, metrics, optimizers, stack


def _deep(policy: str) -> keras.Model:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        model = stack(*(layers.Dense(32, "relu") for _ in range(6)), layers.Dense(2))
        loss = losses.SparseCategoricalCrossentropy(from_logits=True, dtype=policy)
        # No accuracy, which counts an example between two classes as right or wrong.
        measure = metrics.SparseCategoricalCrossentropy(from_logits=True)
        return compiled(model, optimizers.Adam(0.01), loss, metrics=[measure])
    finally:
        keras.config.set_dtype_policy(before)


def _repeated() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).batch(24).repeat()


HELD_OUT = (X[:50], Y[:50])


# Each layer of relu may switch a unit on or off by a difference of 1e-7, and Adam divides gradients by their
# size: in 100 steps this becomes 1e-5 of a weight here, and 1e-2 with other seeds.
@case(bound=0.1, data=_repeated, held_out=HELD_OUT, steps_per_epoch=50)
def rounding_enlarged():
    return _deep("float32")


@case(data=_repeated, held_out=HELD_OUT, steps_per_epoch=50)
def rounding_in_float64():
    return _deep("float64")
