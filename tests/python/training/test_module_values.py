"""Values of the user's modules that the session has changed hold in the workers, too."""

import importlib
import pickle
import sys
import textwrap

import cloudpickle
import keras
import numpy as np
import pytest

import tfdistr
from tfdistr.training.model_copies.given_model import GivenModel
from tfdistr.training.model_copies.module_values import attributes_read, module_values

X = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")

MODULE = """
import keras
import own_numbers
import math

SCALE, TABLE, UNUSED, HELPER = 1.0, [1.0], 1.0, object()


def factor():
    return own_numbers.FACTOR


class Base(keras.layers.Layer):
    shift = 0.0


class Scaled(Base):
    def call(self, x):
        return self.doubled(x) * SCALE * TABLE[0] * factor() + self.shift + math.pi

    @staticmethod
    def doubled(x):
        return [x * part for part in (own_numbers.TWO,)][0]
"""


@pytest.fixture
def own_layers(tmp_path, monkeypatch):
    """A module of the user, which imports another one."""
    (tmp_path / "own_layers.py").write_text(textwrap.dedent(MODULE))
    (tmp_path / "own_numbers.py").write_text("FACTOR, TWO, OTHER = 1.0, 2.0, 3.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("own_layers")
    for name in ("own_layers", "own_numbers"):
        sys.modules.pop(name, None)


def change(module):
    module.SCALE, module.TABLE = 0.5, [0.25]
    module.own_numbers.FACTOR, module.Base.shift = 3.0, 1.0


def test_only_what_the_code_of_a_class_reads_is_sent(own_layers):
    change(own_layers)
    found = {
        (value.module, value.holder, value.name): value.value for value in module_values([own_layers.Scaled])
    }
    assert found == {
        ("own_layers", "", "SCALE"): 0.5,
        ("own_layers", "", "TABLE"): [0.25],
        ("own_layers", "Base", "shift"): 1.0,
        ("own_numbers", "", "FACTOR"): 3.0,
        ("own_numbers", "", "TWO"): 2.0,
    }


def test_a_value_is_restored_where_it_is_another_one(own_layers):
    change(own_layers)
    values = module_values([own_layers.Scaled])
    own_layers.SCALE, own_layers.Base.shift, own_layers.UNUSED = 7.0, 7.0, 7.0
    for value in values:
        value.restore()
    assert (own_layers.SCALE, own_layers.Base.shift, own_layers.UNUSED) == (0.5, 1.0, 7.0)


def test_a_copy_in_the_session_leaves_its_modules_alone(own_layers):
    model = keras.Sequential([keras.Input((4,)), own_layers.Scaled()])
    model.compile("sgd", "mse")
    given = GivenModel(model)
    own_layers.SCALE = 7.0
    given()
    assert own_layers.SCALE == 7.0
    pickle.loads(cloudpickle.dumps(given))()
    assert own_layers.SCALE == 1.0


def test_attributes_that_code_reads_are_found(own_layers):
    assert {"shift", "doubled", "FACTOR", "supports_masking"} <= attributes_read([own_layers.Scaled])
    assert "history_of_fit" not in attributes_read([own_layers.Scaled])
    assert attributes_read([lambda layer, name: getattr(layer, name) * 2]) is None


def test_workers_compute_with_them(own_layers):
    change(own_layers)
    model = keras.Sequential([keras.Input((4,)), own_layers.Scaled(), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.01), "mse")
    weights = model.get_weights()
    arguments = {"batch_size": 8, "epochs": 1, "shuffle": False, "verbose": 0}
    tfdistr.distributed_fit(model, X, X[:, :1], cluster=tfdistr.local_cluster(1), **arguments)
    trained = model.get_weights()
    model.set_weights(weights)
    model.fit(X, X[:, :1], **arguments)
    for received, wanted in zip(trained, model.get_weights(), strict=True):
        np.testing.assert_allclose(received, wanted, rtol=1e-5)
