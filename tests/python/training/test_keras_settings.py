"""Keras's settings of the session hold in the workers, for model functions and for models that were given."""

import subprocess
import sys

import keras
import numpy as np
import pytest

import tfdistr
from tfdistr import tf_internals
from tfdistr.jobs.in_process import AsWorker
from tfdistr.training.keras_settings import KerasSettings
from tfdistr.training.model_copies.given_model import GivenModel

config, layers = keras.config, keras.layers
X = np.random.default_rng(0).normal(size=(16, 4)).astype("float32")


@pytest.fixture
def own_settings():
    """Settings that are not Keras's defaults; the defaults come back at the end."""
    before = KerasSettings.here()
    config.set_floatx("float64")
    config.set_epsilon(0.25)
    config.set_image_data_format("channels_first")
    config.set_dtype_policy("mixed_bfloat16")
    config.disable_flash_attention()
    config.set_max_steps_per_epoch(3)
    config.enable_unsafe_deserialization()
    yield KerasSettings.here()
    before.use()


def test_settings_hold_within_a_context(own_settings):
    policy = keras.dtype_policies.serialize(keras.DTypePolicy("float16"))
    changes = {"epsilon": 0.5, "dtype_policy": policy, "flash_attention": None, "safe_mode": None}
    usual = KerasSettings({**own_settings.values, **changes})
    with usual.used():
        assert (config.epsilon(), config.dtype_policy().name) == (0.5, "float16")
        assert config.is_flash_attention_enabled() is not False
        assert tf_internals.in_safe_mode() is not False
        assert KerasSettings.here() == usual
    assert KerasSettings.here() == own_settings


def test_settings_are_restored_after_an_error(own_settings):
    broken = KerasSettings({**own_settings.values, "epsilon": 0.5, "dtype_policy": {"class_name": "None"}})
    with pytest.raises(Exception, match="None"), broken.used():
        pass
    assert KerasSettings.here() == own_settings


def test_a_process_without_keras_has_no_settings():
    code = (
        "import sys; from tfdistr.training.keras_settings import KerasSettings as K; K.here().use();"
        "print(dict(K.here().values), 'keras' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["{}", "False"]


def settings_as_weights() -> keras.Model:
    """A model whose bias says which settings hold where it is made."""
    seen = [
        float(config.floatx() == "float64"), config.epsilon(),
        float(config.image_data_format() == "channels_first"),
        float(config.dtype_policy().name == "mixed_bfloat16"),
        float(config.is_flash_attention_enabled() is False), float(tf_internals.in_safe_mode() is False),
    ]  # fmt: skip
    bias = layers.Dense(6, bias_initializer=lambda shape, dtype: keras.ops.convert_to_tensor(seen, dtype))
    model = keras.Sequential([keras.Input((4,)), bias, layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.0), "mse")
    return model


def test_the_workers_of_a_model_function_have_them(own_settings):
    fit = tfdistr.distributed_fit(
        settings_as_weights, X, X[:, :1], batch_size=8, epochs=1, seed=1, verbose=0,
        cluster=tfdistr.local_cluster(1),
    )  # fmt: skip
    np.testing.assert_array_equal(fit.model.layers[0].bias.numpy(), [1, 0.25, 1, 1, 1, 1])
    assert fit.model.layers[0].compute_dtype == "bfloat16"


def test_a_result_has_a_model_of_the_settings_of_its_fit(tmp_path):
    before = KerasSettings.here()
    config.set_dtype_policy("mixed_bfloat16")
    config.set_epsilon(0.25)
    try:
        fit = tfdistr.distributed_fit(
            settings_as_weights, X, X[:, :1], batch_size=8, epochs=1, seed=1, verbose=0
        )
    finally:
        before.use()
    fit.save(tmp_path / "fit")
    loaded = tfdistr.FitResult.load(tmp_path / "fit")
    assert loaded.model.layers[0].compute_dtype == "bfloat16"
    np.testing.assert_array_equal(loaded.predict(X), fit.predict(X))
    assert loaded.evaluate(X, X[:, :1]) == fit.evaluate(X, X[:, :1])
    assert KerasSettings.here() == before


def test_a_copy_is_built_under_the_settings_in_which_the_model_was_given():
    config.set_image_data_format("channels_first")
    try:
        pool = layers.GlobalAveragePooling2D()
        model = keras.Sequential([keras.Input((2, 3, 3)), _OwnPool(), pool, layers.Dense(1)])
        model.compile("sgd", "mse")
        given = GivenModel(model)
    finally:
        config.set_image_data_format("channels_last")
    copy = given()
    assert copy.layers[0].pool.data_format == "channels_first"
    assert config.image_data_format() == "channels_last"


class _OwnPool(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.pool = layers.MaxPooling2D(2, padding="same")

    def call(self, x):
        return self.pool(x)


def test_processes_that_join_a_cluster_by_hand_compare_them(monkeypatch):
    class Peers:
        """The strategy of one of two workers."""

        num_workers, worker_index, collectives = 2, 0, object()

    received = {}
    monkeypatch.setattr("tfdistr.collectives.comparison.agree", lambda _, fields: received.update(fields))
    job = tfdistr.training.job_arguments.make_job(settings_as_weights, X, X[:, :1], num_workers=2)
    AsWorker(Peers()).agree(job)
    assert received["keras.config.epsilon()"] == "1e-07"
