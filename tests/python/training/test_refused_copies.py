"""A copy of a given model that would not be the model is refused, and the difference named."""

import keras
import pytest
from copied_models import Configured, Helper, Outer, Scaled, X, Y, changed, compiled, sequence

import tfdistr
from tfdistr.training.model_copies.fingerprint import differing_attributes
from tfdistr.training.model_copies.given_model import GivenModel

layers, ops = keras.layers, keras.ops


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
