"""The same job from Python and from R, each on two workers: the same weights and history."""

import numpy as np
from digits_job import train, train_in_r

if __name__ == "__main__":
    python = train(2)
    weights, history = train_in_r(2)
    for mine, theirs in zip(python.model.get_weights(), weights, strict=True):
        np.testing.assert_allclose(theirs, mine, rtol=0, atol=1e-7)
    assert sorted(history) == sorted(python.history)
    for name, values in python.history.items():
        np.testing.assert_allclose(history[name], values, rtol=0, atol=1e-6)
    print("same weights")
