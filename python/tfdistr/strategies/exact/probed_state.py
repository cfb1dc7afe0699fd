"""The state of a model that a step may change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.strategies.exact.replica import OneReplica

# Weights are changed by this part of their size, or by this number. Where they are 0, as the last layers of
# some models are at first, gradients are 0.
_PERTURBATION = 0.05


class ProbedState:
    """The variables and the attributes of a built model, and of what works with it, that a step may change.

    Attributes:
        variables: This worker's parts of the variables, by their id.
        names: The name of each variable.
        metrics: The ids of the variables of metrics.
        shown: The ids of the variables whose change is an effect of a step.
        generators: The ids of the states of TensorFlow's random generators.
        start: The values with which each run of steps starts.
    """

    def __init__(self, extended: OneReplica, model: keras.Model) -> None:
        self._extended, self._model = extended, model
        part = extended.local_variable
        seeds = self._seeds()
        of_optimizers = list(_state_of_optimizers(model))
        found = [*tf_internals.variables_of(model), *model.metrics_variables, *seeds, *of_optimizers]
        found += tf_internals.random_generators(model)
        watched: list[tf.Variable] = []
        if extended.collectives is not None:
            watched = [*extended.checks.loss.variables, *extended.checks.loss.inputs.variables]
        self.variables = {id(own): own for own in map(part, [*found, *watched])}
        paths = {id(part(variable)): _path(variable) for variable in [*found, *watched]}
        # Several variables may have one path.
        self.names = {key: f"{number} {paths[key]}" for number, key in enumerate(self.variables)}
        self.metrics = [id(part(variable)) for variable in model.metrics_variables]
        hidden = {id(part(v)) for v in [*seeds, *watched, *of_optimizers]} | set(self.metrics)
        hidden |= {id(variable) for variable in tf_internals.random_generators(model)}
        self.shown = [key for key in self.variables if key not in hidden]
        self._python = PythonState(model)
        self.generators = [id(v) for v in tf_internals.random_generators(model)]
        self.start: dict[int, tf.Tensor] = {}

    def _seeds(self) -> list[Any]:
        common = tf_internals.existing_seed_generator()
        generators = [*tf_internals.seed_generators(self._model), *([common] if common else [])]
        return [generator.state for generator in generators]

    def values(self) -> dict[int, tf.Tensor]:
        """Return the values of the variables."""
        return {key: variable.read_value() for key, variable in self.variables.items()}

    def share_from_chief(self) -> None:
        """Give the layers the state of the chief's. All workers must call it."""
        extended = self._extended
        trained = {id(extended.local_variable(weight)) for weight in self._model.trainable_variables}
        own = [self.variables[key] for key in self.shown if key not in trained]
        shared = [variable for variable in own if variable.dtype.is_floating]
        if extended.collectives is not None and shared:
            extended.share_from_chief(shared)

    def perturb(self) -> None:
        """Change the weights a little."""
        numbers = np.random.default_rng(0)
        for weight in map(self._extended.local_variable, self._model.trainable_variables):
            if weight.dtype.is_floating:
                value = tf.cast(weight.read_value(), tf.float32).numpy()
                size = _PERTURBATION * (float(np.sqrt(np.mean(np.square(value)))) or 1.0)
                changed = value + size * numbers.standard_normal(value.shape, np.float32)
                weight.assign(tf.cast(changed, weight.dtype))

    def restore(self, values: dict[int, tf.Tensor]) -> None:
        """Set the variables to such values, and the attributes to those of the start."""
        for key, value in values.items():
            self.variables[key].assign(value)
        self._python.restore()

    def has_changed(self, key: int) -> bool:
        """Return whether a variable differs from its value at the start."""
        return bool(tf.reduce_any(self.variables[key].read_value() != self.start[key]))


def _state_of_optimizers(model: keras.Model) -> Iterator[Any]:
    """Yield the variables of optimizers that a step may change without ``apply()``.

    Keras's own change variables with the shapes of weights in ``apply()`` only, which is not called.
    """
    for optimizer in tf_internals.optimizers_of(model):
        of_keras = type(optimizer).__module__.partition(".")[0] == "keras"
        yield from (v for v in optimizer.variables if not of_keras or len(v.shape) == 0)


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", variable.name)).removesuffix(":0")


_PLAIN = (bool, int, float, str, type(None), tf.Tensor, np.ndarray)


class PythonState:
    """The plain attributes of a model, its layers and its metrics: numbers, text, tensors, lists, and so on.

    Those that all Keras objects have are Keras's own: they change together with others.
    """

    def __init__(self, model: keras.Model) -> None:
        of_keras = {*vars(keras.Model()), *vars(keras.layers.Layer()), *vars(keras.metrics.Metric())}
        holders = [model, *tf_internals.all_layers(model), *model.metrics]
        self._kept = [(vars(holder), _plain(vars(holder), of_keras)) for holder in holders]

    def restore(self) -> None:
        """Give each attribute the value that it had when this object was made."""
        for attributes, kept in self._kept:
            for name, (value, content) in kept.items():
                attributes[name] = value
                held = _held(value)
                # Not by their own methods: Keras's lists and dictionaries track what they get.
                if content is not None and issubclass(type(held), list):
                    list.clear(held)
                    list.extend(held, content)
                elif content is not None:
                    dict.clear(held)
                    dict.update(held, content)


def _plain(attributes: dict[str, object], left: set[str]) -> dict[str, tuple[Any, Any]]:
    """Return the plain values among attributes, but those in ``left``, each with a copy of its content."""
    found = {name: value for name, value in attributes.items() if name not in left}
    contents = {name: _content(value) for name, value in found.items()}
    return {
        name: (value, contents[name])
        for name, value in found.items()
        if contents[name] is not None or isinstance(value, _PLAIN)
    }


def _held(value: object) -> Any:
    """Return the list or dictionary in one that TensorFlow has wrapped."""
    return getattr(value, "__wrapped__", value)


def _content(value: object) -> list[Any] | dict[Any, Any] | None:
    held = _held(value)
    if issubclass(type(held), list):
        return list(held)
    return dict(held) if issubclass(type(held), dict) else None
