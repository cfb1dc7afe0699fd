"""A copy of a given model makes the same step: what no configuration describes is restored, or refused."""

import pickle
import warnings

import cloudpickle
import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdistr
from tfdistr.training.fingerprint import differing_attributes
from tfdistr.training.given_model import GivenModel

layers, ops = keras.layers, keras.ops
X = np.random.default_rng(0).normal(size=(16, 8)).astype("float32")
Y = X[:, :1] * 2


class Scaled(layers.Layer):
    """A layer whose attributes are in no configuration."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scale, self.offsets, self._hidden = 2.0, [1.0, 2.0], 1.0
        self.table = tf.Variable(1.0, trainable=False)
        self.dense = layers.Dense(8)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        factor = self.scale * self._hidden * ops.cast(self.table, self.compute_dtype)
        return self.dense(x) * factor + sum(self.offsets)


class Outer(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner, self.helpers = Scaled(), {"first": Helper()}

    def build(self, shape):
        self.inner.build(shape)

    def call(self, x):
        return self.inner(x) * self.helpers["first"].factor


class Helper:
    def __init__(self):
        self.factor = 1.0


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


def compiled(model, optimizer=None, loss="mse"):
    model.compile(optimizer or keras.optimizers.SGD(0.01), loss)
    return model


def sequence(*parts, **arguments) -> keras.Model:
    return compiled(keras.Sequential([keras.Input((8,)), *parts, layers.Dense(1)]), **arguments)


def changed(*parts, **attributes) -> keras.Model:
    """A model whose first part gets attributes after it was made; ``inner__scale`` is one of a part of it."""
    model = sequence(*parts)
    for name, value in attributes.items():
        holder = model.layers[0]
        *way, last = name.split("__")
        for step in way:
            holder = getattr(holder, step)
        setattr(holder, last, value)
    return model


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


def copy_elsewhere(model: keras.Model) -> keras.Model:
    """The copy that another process would have."""
    return pickle.loads(cloudpickle.dumps(GivenModel(model)))()


def state(model: keras.Model) -> list[np.ndarray]:
    variables = [*model.variables, *model.optimizer.variables]
    return [np.asarray(variable.value.numpy(), "float64") for variable in variables]


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


class Configured(layers.Layer):
    """A layer with an object that others of its kind share."""

    shared = Helper()

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.helper = Configured.shared

    def call(self, x):
        return x * self.helper.factor


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


# --- What cannot be restored


class Fed(keras.Model):
    """A model whose parts can be replaced before they have weights."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second, self.out = layers.Dense(8), layers.Dense(8), layers.Dense(1)

    def call(self, x):
        return self.out(self.second(self.first(x)))


class Fixed(Scaled):
    """A layer that refuses another scale."""

    def __setattr__(self, name, value):
        if name == "scale" and getattr(self, "locked", False):
            raise AttributeError("scale is fixed")
        super().__setattr__(name, value)


class Hidden:
    """An object whose attribute nobody can list."""

    __slots__ = ("factor",)


class Counted(layers.Layer):
    """A layer that depends on how many were made before."""

    made = 0

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        Counted.made += 1
        self.hidden = Hidden()
        self.hidden.factor = Counted.made

    def call(self, x):
        return x * self.hidden.factor


class Refusing(Counted):
    def call(self, x):
        if self.hidden.factor > 1 and hasattr(x, "numpy"):
            raise ValueError("only once")
        return x


class Narrow(layers.Layer):
    """A layer whose configuration lacks an argument."""

    def __init__(self, width, **kwargs):
        super().__init__(**kwargs)
        self.width = width

    def call(self, x):
        return x

    def get_config(self):
        return super().get_config()


def _with_layer() -> Helper:
    helper = Helper()
    helper.factor, helper.layer = 0.5, layers.Identity()
    return helper


class Stubborn(layers.Layer):
    """A layer that is always trained."""

    @property
    def trainable(self):
        return True

    @trainable.setter
    def trainable(self, value):
        pass

    def call(self, x):
        return x


def one_layer_twice() -> keras.Model:
    model = compiled(Fed())
    model.second = model.first
    model(X[:2])
    return model


class Choice(layers.Layer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = layers.Identity(), layers.Activation("tanh")
        self.chosen = self.first

    def call(self, x):
        return self.chosen(x)


def another_layer() -> keras.Model:
    model = sequence(Choice())
    vars(model.layers[0])["chosen"] = model.layers[0].second
    return model


def fixed() -> keras.Model:
    model = sequence(Fixed())
    model.layers[0].scale = 3.0
    return model


REFUSED = {
    "a function": (
        lambda: changed(Scaled(), post=ops.tanh),
        r"`post` of the layer 'scaled\w*' \(Scaled\): tanh\(\) in the model, nothing in its copy",
    ),
    "another layer": (another_layer, r"`chosen` of the layer 'choice\w*' \(Choice\): Activation 'activation"),
    "a layer in place of another": (one_layer_twice, r"the (layers|variables of the layer 'dense\w*')"),
    "a layer that cannot be frozen": (
        lambda: changed(Stubborn(), _trainable=False),
        "Received: `trainable` of a layer, which a copy does not keep",
    ),
    "an object with a layer": (
        lambda: changed(Configured(), helper=_with_layer()),
        r"`helper.factor` of the layer 'configured\w*' \(Configured\): 0.5 in the model, 1.0 in its copy",
    ),
    "other items": (
        lambda: changed(Outer(), helpers={"first": Helper(), "second": Helper()}),
        r"`helpers\['second'\]` of the layer 'outer\w*' \(Outer\): an object of Helper in the model, nothing",
    ),
    "from_config()": (
        lambda: sequence(Narrow(3)),
        r"Cannot rebuild `model`.*TypeError: Narrow.__init__\(\) missing 1 required",
    ),
    "outputs": (lambda: sequence(Counted()), "computes something else.*output 0: a difference of up to"),
    "a call": (lambda: sequence(Refusing()), "computes something else.*ValueError from the call of a copy"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_restored_is_named(what):
    Counted.made = 0
    make, words = REFUSED[what]
    with pytest.raises(tfdistr.ArgumentError, match=f"(?s){words}.*Fix: .*pass a function that builds"):
        tfdistr.distributed_fit(make(), X, Y, batch_size=8, epochs=1, verbose=0)


def test_an_attribute_that_the_class_refuses_is_named(monkeypatch):
    model = fixed()
    monkeypatch.setattr(Fixed, "locked", True, raising=False)
    monkeypatch.setattr(Scaled, "__init__", _made_with_scale(Scaled.__init__))
    with pytest.raises(
        tfdistr.ArgumentError, match=r"`scale` of the layer 'fixed\w*' \(Fixed\): 3\.0 in the"
    ):
        GivenModel(model)


def _made_with_scale(usual):
    """A constructor whose attributes are set before the class refuses them."""

    def __init__(self, **kwargs):
        Fixed.locked = False
        usual(self, **kwargs)
        Fixed.locked = True

    return __init__


def test_another_number_of_optimizers_is_named():
    model, copy = sequence(layers.Dense(8)), sequence(layers.Dense(8))
    model.other_optimizer = keras.optimizers.SGD()
    (difference,) = differing_attributes(model, copy)
    assert "the layers and optimizers: Sequential, " in str(difference)
    assert difference.patch is None


# --- Models as they usually are


def images() -> tuple:
    inputs = keras.Input((12, 12, 1))
    x = layers.BatchNormalization()(layers.Conv2D(4, 3, activation="relu")(inputs))
    x = layers.Dropout(0.3)(layers.Flatten()(layers.MaxPooling2D()(x)))
    model = keras.Model(inputs, layers.Dense(3)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, metrics=["accuracy"])
    return model


def transformer() -> keras.Model:
    inputs = keras.Input((6,))
    x = layers.Embedding(20, 8)(inputs)
    x = layers.LayerNormalization()(x + layers.MultiHeadAttention(2, 4, dropout=0.1)(x, x))
    x = layers.LayerNormalization()(x + layers.Dense(8)(layers.Dense(16, "gelu")(x)))
    model = keras.Model(inputs, layers.Dense(3, "softmax")(layers.GlobalAveragePooling1D()(x)))
    schedule = keras.optimizers.schedules.CosineDecay(0.01, 100)
    metrics = [keras.metrics.SparseCategoricalAccuracy(), keras.metrics.SparseTopKCategoricalAccuracy(2)]
    model.compile(keras.optimizers.AdamW(schedule), "sparse_categorical_crossentropy", metrics=metrics)
    return model


def recurrent() -> keras.Model:
    parts = [
        layers.Embedding(20, 8, mask_zero=True),
        layers.Bidirectional(layers.LSTM(4, recurrent_dropout=0.1, return_sequences=True)),
        layers.RNN([layers.LSTMCell(4), layers.GRUCell(4)]),
    ]
    return compiled(keras.Sequential([keras.Input((6,)), *parts, layers.Dense(1)]), "rmsprop")


def normalized() -> keras.Model:
    normalization = layers.Normalization()
    normalization.adapt(X)
    dense = layers.Dense(4, kernel_regularizer="l2", kernel_constraint=keras.constraints.MaxNorm(2.0))
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9, clipnorm=1.0, use_ema=True)
    return sequence(normalization, dense, layers.GaussianNoise(0.1), optimizer=optimizer, loss="huber")


class Net(keras.Model):
    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.blocks = [layers.Dense(units, "relu") for _ in range(2)]
        self.parts = {"out": layers.Dense(1), "drop": layers.Dropout(0.2)}

    def call(self, x, training=False):
        for block in self.blocks:
            x = block(x)
        return self.parts["out"](self.parts["drop"](x, training=training))

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def called_subclass() -> keras.Model:
    model = compiled(Net(4))
    model(X[:2])
    return model


class Projection(layers.Layer):
    def __init__(self, units, activation="relu", **kwargs):
        super().__init__(**kwargs)
        self.units, self.activation = units, keras.activations.get(activation)

    def build(self, shape):
        self.kernel = self.add_weight(shape=(shape[-1], self.units))
        self.shape_of_kernel = (shape[-1], self.units)

    def call(self, x):
        self.last = self.activation(x @ self.kernel)  # a tensor of a trace
        return self.last

    def get_config(self):
        activation = keras.activations.serialize(self.activation)
        return {**super().get_config(), "units": self.units, "activation": activation}


def used_layers() -> keras.Model:
    model = sequence(Projection(8), Projection(8, "tanh"))
    model.fit(X, Y, verbose=0)
    model.predict(X, verbose=0)
    return model


def nested() -> keras.Model:
    encoder = keras.Sequential([keras.Input((8,)), layers.Dense(4, "relu")], name="encoder")
    encoder.trainable = False
    inputs = keras.Input((8,))
    outputs = {name: layers.Dense(1, name=name)(encoder(inputs)) for name in ("a", "b")}
    model = keras.Model(inputs, outputs)
    model.compile("adam", {"a": "mse", "b": "mae"}, loss_weights={"a": 1.0, "b": 0.5})
    return model


class OwnStep(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def own_step() -> keras.Model:
    inputs = keras.Input((8,))
    return compiled(OwnStep(inputs, layers.Dense(1)(inputs)), "adam")


def unbuilt() -> keras.Model:
    parts = [layers.Dense(4, "relu"), layers.Dropout(0.2), layers.BatchNormalization(), layers.Dense(1)]
    return compiled(keras.Sequential(parts), "adam")


def of_text() -> keras.Model:
    lookup = layers.StringLookup(vocabulary=["a", "b", "c"])
    inputs = keras.Input((1,), dtype="string")
    return compiled(keras.Model(inputs, layers.Dense(1)(layers.Embedding(8, 2)(lookup(inputs))[:, 0])))


USUAL = [images, transformer, recurrent, normalized, lambda: compiled(Net(4)), called_subclass, used_layers,
         nested, own_step, unbuilt, of_text]  # fmt: skip


@pytest.mark.parametrize("make", USUAL, ids=lambda make: make.__name__)
def test_a_usual_model_needs_no_corrections_and_makes_no_noise(make):
    model = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        given = GivenModel(model)
    assert given._corrections.patches == []
    assert given._corrections.values == given._corrections.optimizers == {}


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
