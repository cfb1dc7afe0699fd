"""The values of a trained model, in a model that has fewer weights before its first call."""

import keras
import numpy as np
import pytest

import tfdistr

layers, ops = keras.layers, keras.ops
X = np.random.default_rng(0).normal(size=(16, 4, 3)).astype("float32")
JOB = {"batch_size": 8, "epochs": 1, "seed": 1, "verbose": 0}


class Cell(layers.Layer):
    """A cell whose layer has no weights before a call: Keras infers the shapes of an RNN without one."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = self.state_size = units
        self.projection = layers.Dense(units)

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units))

    def call(self, x, states):
        output = self.projection(ops.tanh(x @ self.kernel + states[0]))
        return output, [output]

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def recurrent() -> keras.Model:
    model = keras.Sequential([keras.Input((4, 3)), layers.RNN(Cell(4)), layers.Dense(1)])
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize("given", [False, True], ids=["a function", "a model"])
def test_a_cell_gets_all_trained_weights(given):
    model = recurrent()
    assert len(model.weights) == 3
    fit = tfdistr.distributed_fit(model if given else recurrent, X, X[:, 0, :1], **JOB)
    assert len(fit.model.weights) == 5
    if given:
        assert fit.model is model
    again = tfdistr.distributed_fit(fit.model, X, X[:, 0, :1], **JOB)
    assert int(again.model.optimizer.iterations) == 4
    np.testing.assert_allclose(again.predict(X), again.model.predict(X, verbose=0), rtol=1e-5)

