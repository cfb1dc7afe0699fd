"""A copy of a given model makes the same step: what no configuration describes is restored, or refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from copied_models import (
    Configured,
    Helper,
    Net,
    Outer,
    Scaled,
    X,
    Y,
    changed,
    compiled,
    copy_elsewhere,
    sequence,
    state,
)

import tfdistr
from tfdistr.training.model_copies.given_model import GivenModel

layers, ops = keras.layers, keras.ops


class OwnLoss(keras.losses.Loss):
    weight = 1.0

    def call(self, y_true, y_pred):
        return self.weight * ops.mean(ops.square(y_true - y_pred), -1)


class OwnRegularizer(keras.regularizers.Regularizer):
    strength = 0.1

    def __call__(self, weight):
        return self.strength * ops.sum(ops.square(weight))

    def get_config(self):
        return {}


class Stateful(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.dense, self.gain = layers.Dense(1), 1.0
        self.calls = self.add_weight(shape=(), initializer="zeros", trainable=False, name="calls")

    def call(self, x):
        self.calls.assign_add(1.0)
        return self.dense(x) * self.gain * self.calls


def excluded_by_name() -> keras.Model:
    optimizer = keras.optimizers.AdamW(0.01, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_names=["bias"])
    return sequence(layers.Dense(8, bias_initializer="ones"), optimizer=optimizer)


def excluded_by_variable() -> keras.Model:
    model = sequence(layers.Dense(8), optimizer=keras.optimizers.AdamW(0.01, weight_decay=0.5))
    model.optimizer.exclude_from_weight_decay(var_list=[model.layers[0].kernel])
    return model


def changed_list() -> keras.Model:
    model = sequence(Outer())
    model.layers[0].inner.offsets[0] = 3.0
    model.layers[0].helpers["first"].factor = 0.5
    return model


def changed_variable() -> keras.Model:
    model = sequence(Scaled())
    model.layers[0].table.assign(0.5)
    return model


def with_lora(part, **arguments) -> keras.Model:
    model = sequence(part)
    dense = part if isinstance(part, layers.Dense) else part.inner.dense
    dense.enable_lora(2, **arguments)
    return compiled(model)


def quantized() -> keras.Model:
    model = sequence(Outer())
    model.layers[0].inner.dense.quantize("int8")
    return compiled(model)


def of_policy(policy) -> keras.Model:
    """A model of a session whose policy is another one now."""
    keras.config.set_dtype_policy(policy)
    try:
        return sequence(layers.Dense(8), Outer())
    finally:
        keras.config.set_dtype_policy("float32")


def own_loss() -> keras.Model:
    loss = OwnLoss()
    loss.weight = 0.25
    return sequence(layers.Dense(8), loss=loss)


def own_regularizer() -> keras.Model:
    regularizer = OwnRegularizer()
    regularizer.strength = 0.5
    return sequence(layers.Dense(8, kernel_regularizer=regularizer))


def stateful() -> keras.Model:
    model = compiled(Stateful())
    model(X[:2])
    model.gain = 3.0
    return model


def frozen_after_training() -> keras.Model:
    model = sequence(layers.Dense(8), optimizer=keras.optimizers.Adam(0.01))
    model.train_on_batch(X, Y)
    model.layers[0].trainable = False
    model.make_train_function(force=True)
    model.reset_metrics()
    return model


def replaced_helper() -> keras.Model:
    model = sequence(Outer())
    model.layers[0].helpers["first"] = shared = Helper()
    shared.factor = 0.25
    return model


def captured() -> keras.Model:
    factor, row = np.float32(3.0), tf.range(8, dtype=tf.float32)

    def tripled(x):
        return x * factor

    inputs = keras.Input((8,))
    return compiled(keras.Model(inputs, layers.Dense(1)(layers.Dense(8, tripled)(inputs * row))))


def shared_layer() -> keras.Model:
    inputs, dense = keras.Input((8,)), Scaled()
    return compiled(keras.Model(inputs, layers.Dense(1)(dense(dense(inputs)))))


RESTORED = {
    "weight decay, by name": excluded_by_name,
    "weight decay, by variable": excluded_by_variable,
    "a frozen variable": lambda: changed(layers.Dense(8), kernel__trainable=False),
    "a frozen part of a part": lambda: changed(Outer(), inner__dense__trainable=False),
    "layers that were frozen after training": frozen_after_training,
    "a number": lambda: changed(Scaled(), scale=0.5),
    "a list": lambda: changed(Scaled(), offsets=[4.0]),
    "an item of a list, and a helper's attribute": changed_list,
    "a private attribute": lambda: changed(Outer(), inner___hidden=0.5),
    "an array": lambda: changed(Scaled(), scale=np.arange(8, dtype="float32")),
    "a tensor": lambda: changed(Scaled(), scale=tf.range(8, dtype=tf.float32)),
    "a variable of TensorFlow": changed_variable,
    "an attribute of a loss": own_loss,
    "an attribute of a regularizer": own_regularizer,
    "LoRA": lambda: with_lora(layers.Dense(8)),
    "LoRA in a part of a part": lambda: with_lora(Outer(), lora_alpha=7),
    "quantized": quantized,
    "mixed_bfloat16": lambda: sequence(
        layers.Dense(8, dtype="mixed_bfloat16"), Outer(dtype="mixed_bfloat16")
    ),
    "mixed_float16 of the session": lambda: of_policy("mixed_float16"),
    "float64 of the session": lambda: of_policy("float64"),
    "a subclass with a state": stateful,
    "captured constants": captured,
    "a helper in place of another": replaced_helper,
    "weights that two calls share": shared_layer,
}


@pytest.mark.parametrize("what", RESTORED)
def test_a_copy_makes_the_same_steps(what):
    keras.utils.set_random_seed(1)
    model = RESTORED[what]()
    copy = copy_elsewhere(model)
    for original, copied in zip(state(model), state(copy), strict=True):
        np.testing.assert_array_equal(original, copied)
    for _ in range(2):
        losses = [held.train_on_batch(X, Y) for held in (model, copy)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    for original, copied in zip(state(model), state(copy), strict=True):
        np.testing.assert_allclose(original, copied, rtol=1e-5, atol=1e-6)


def test_an_object_that_several_layers_share_is_not_changed():
    model = sequence(Configured())
    model.layers[0].helper = Helper()
    model.layers[0].helper.factor = 0.5
    copy = GivenModel(model)()
    assert copy.layers[0].helper.factor == 0.5
    assert copy.layers[0].helper is not model.layers[0].helper
    assert Configured.shared.factor == 1.0


def test_what_is_set_in_keras_own_objects_is_restored():
    model = sequence(layers.Dense(8))
    model.layers[0].supports_masking = model.layers[0].autocast = False
    model.run_eagerly = True
    copy = copy_elsewhere(model)
    assert not copy.layers[0].supports_masking
    assert not copy.layers[0].autocast
    assert copy.run_eagerly


def test_a_layer_with_lora_trains_its_factors_on_workers():
    model = with_lora(Outer())
    fit = tfdistr.distributed_fit(
        model, X, Y, batch_size=8, epochs=1, seed=1, verbose=0, cluster=tfdistr.local_cluster(1)
    )
    assert fit.model is model
    assert np.abs(model.layers[0].inner.dense.lora_kernel_b.value.numpy()).max() > 0
    np.testing.assert_allclose(fit.predict(X), model.predict(X, verbose=0), rtol=1e-5)


def test_the_session_is_as_before():
    model = sequence(Scaled(), layers.Dropout(0.5))
    keras.utils.set_random_seed(1)
    expected = [layers.Dense(1).name, *np.random.random(2), *tf.random.normal([2]).numpy()]
    keras.utils.set_random_seed(1)
    names = layers.Dense(1).name
    keras.utils.set_random_seed(1)
    given = GivenModel(model)
    given.check_outputs(lambda: X[:2])
    found = [layers.Dense(1).name, *np.random.random(2), *tf.random.normal([2]).numpy()]
    assert found[1:] == expected[1:]
    assert int(found[0].split("_")[1]) == int(names.split("_")[1]) + 1


# --- What is said of the comparison


@pytest.mark.parametrize(
    ("make", "x", "checked"),
    [
        (lambda: sequence(layers.Dense(8)), X, "fingerprint only"),
        (lambda: sequence(Scaled()), X, "fingerprint, outputs and gradients"),
        (lambda: compiled(Net(4)), X, "fingerprint only"),
        (lambda: sequence(Scaled()), lambda: tf.data.Dataset.from_tensor_slices((X, Y)).batch(8),
         "fingerprint only"),
    ],
    ids=["of Keras", "own layers", "not built", "no rows"],
)  # fmt: skip
def test_the_result_says_what_was_compared(make, x, checked):
    arrays = {} if callable(x) else {"y": Y, "batch_size": 8}
    fit = tfdistr.distributed_fit(make(), x, epochs=1, seed=1, verbose=0, **arrays)
    assert fit.params["model_copy"] == checked
    assert f"Copy of the model: {checked} compared" in str(fit.summary())


def test_the_result_of_a_function_says_nothing_of_a_copy():
    fit = tfdistr.distributed_fit(lambda: sequence(layers.Dense(8)), X, Y, epochs=1, verbose=0)
    assert "model_copy" not in fit.params
    assert "Copy of" not in str(fit.summary())


def test_the_comparison_leaves_the_model_as_it_was():
    model = stateful()
    before = state(model)
    given = GivenModel(model)
    given.check_outputs(lambda: X[:2])
    assert given.checked == "fingerprint, outputs and gradients"
    for now, then in zip(state(model), before, strict=True):
        np.testing.assert_array_equal(now, then)
