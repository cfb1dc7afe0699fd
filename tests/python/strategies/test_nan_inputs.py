"""The detection of missing values (NaN) in inputs."""

import numpy as np
import pytest
import tensorflow as tf

from tfdistr.strategies.exact.nan_inputs import InputWatch


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("wrap", [lambda see: see, tf.function], ids=["eagerly", "in a graph"])
def test_infinite_values_are_not_missing(dtype, wrap):
    watch = InputWatch()
    see = wrap(watch.see)
    both = np.array([np.inf, 1.0, -np.inf], dtype)
    see({"known": tf.constant(both), "gaps": tf.constant(both)})
    assert watch.describe() == ""
    see({"known": tf.constant(both), "gaps": tf.constant([*both[:2], np.nan], dtype)})
    assert watch.describe() == "x['gaps'] (step 2)"
