"""The comparison of the models of workers, with a stand-in for the exchange."""

import logging
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdistr.errors import JobMismatchError
from tfdistr.strategies.agreement import Agreement


class WithAnotherModel:
    """The collectives of worker 1, whose chief has another model of the same form."""

    def __init__(self, chief: Agreement) -> None:
        self._chief = iter([variable for _, variable in chief._variables()])

    def all_gather(self, own: tf.Tensor, axis: int) -> tf.Tensor:
        other = tf.zeros_like(own) if own.dtype == tf.float64 else own - 1  # sizes, or checksums
        return tf.concat([other, own], axis)

    def from_chief(self, values: list[tf.Tensor]) -> list[tf.Tensor]:
        return [next(self._chief).read_value()]


def model(dtype: str = "float32") -> keras.Model:
    keras.utils.set_random_seed(1)
    dense = keras.layers.Dense(300, dtype=dtype, name="dense")
    made = keras.Sequential([keras.Input((40,)), dense], name="m")
    made.compile("adam", "mse")
    made.optimizer.build(made.trainable_variables)
    return made


def agreement(made: keras.Model, *, chief: keras.Model | None = None, virtual: bool = False) -> Agreement:
    extended = SimpleNamespace(local_variable=lambda variable: variable, virtual=virtual or None, keeps=made)
    extended.collectives = WithAnotherModel(agreement(chief)) if chief is not None else None
    return Agreement(extended, made, ["Writer"])


def changed(factor: float, dtype: str = "float32") -> keras.Model:
    made = model(dtype)
    made.layers[0].kernel.assign(made.layers[0].kernel * factor)
    return made


def test_the_checksum_sees_every_number():
    first = agreement(model()).checksum()
    assert agreement(model()).checksum() == first
    for place in ((0, 0), (20, 7), (39, 299)):
        made = model()
        kernel = made.layers[0].kernel.numpy()
        kernel[place] = np.nextafter(kernel[place], 1)
        made.layers[0].kernel.assign(kernel)
        assert agreement(made).checksum() != first
    made = model()
    made.optimizer.learning_rate = 0.5
    assert agreement(made).checksum() != first
    assert agreement(model("bfloat16")).checksum() != first


def test_a_difference_names_what_differs():
    with pytest.raises(JobMismatchError) as caught:
        agreement(changed(1.5), chief=model()).check([1, 2], "after epoch 3")
    assert caught.value.message == "The workers no longer have the same model."
    assert caught.value.received == (
        "m/dense/kernel of worker 1, which differs from that of worker 0 by 0.33 times its largest value, "
        "after epoch 3"
    )
    assert "Not all workers run these callbacks: Writer." in caught.value.fix


@pytest.mark.parametrize(("dtype", "factor"), [("float32", 1 + 1e-6), ("bfloat16", 1.02)])
def test_rounding_warns_once_and_ends_a_job_with_virtual_workers(caplog, dtype, factor):
    first = model(dtype)
    with caplog.at_level(logging.WARNING, "tfdistr"):
        compared = agreement(changed(factor, dtype), chief=first)
        compared.check([1, 2], "after epoch 1")
        compared._extended.collectives = WithAnotherModel(agreement(first))
        compared.check([1, 2], "after epoch 2")
    assert len(caplog.records) == 1
    assert "differ by rounding (m/dense/kernel of worker 1 by " in caplog.text
    with pytest.raises(JobMismatchError):
        agreement(changed(factor, dtype), chief=first, virtual=True).check([1, 2], "after epoch 1")


def test_nan_equals_nan():
    compared = agreement(changed(np.nan), chief=changed(-np.nan))
    compared.check([1, 2], "after epoch 1")
    with pytest.raises(JobMismatchError, match="by inf times"):
        agreement(changed(np.nan), chief=model()).check([1, 2], "after epoch 1")
