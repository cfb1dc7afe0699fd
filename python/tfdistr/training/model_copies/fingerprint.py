"""The comparison of a model with its copy, without computing: attributes, variables and dtype policies.

A configuration describes a model as its author thought of it. What was set later, or what ``get_config()``
leaves out, is in no configuration. Both models are compared object by object.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from tfdistr import tf_internals
from tfdistr.training.model_copies.module_values import attributes_read
from tfdistr.training.model_copies.patches import Attribute, Patch, attribute_path
from tfdistr.training.model_copies.plain_values import (
    as_array,
    is_plain,
    is_symbolic,
    same_array,
    same_function,
    same_plain,
    shown,
)


class ModelDifference(NamedTuple):
    """A difference between a model and its copy.

    Attributes:
        what: Names the attribute and its layer.
        there: What the model has, as text.
        here: What the copy has.
        patch: Makes them equal; None if nothing can.
        attributes: The attributes on the way to it.
    """

    what: str
    there: str
    here: str
    patch: Patch | None = None
    attributes: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.what}: {self.there} in the model, {self.here} in its copy"


def variables_in(layers: Sequence[keras.Layer]) -> list[keras.Variable]:
    """Return the variables of layers, each once, in an order that a copy shares."""
    found = [variable for layer in layers for variable in tf_internals.own_variables(layer)]
    return list({id(variable): variable for variable in found}.values())


def parts_of_model(model: keras.Model) -> list[tuple[str, object]]:
    """Return the parts of a compiled model whose attributes are compared, with their names for messages."""
    layers = [(_label_of(layer), layer) for layer in tf_internals.made_layers(model)[1:]]
    optimizers = [("the optimizer", optimizer) for optimizer in tf_internals.optimizers_of(model)]
    return [("the model", model), *layers, *optimizers, ("compile()", tf_internals.compile_arguments(model))]


def _label_of(layer: keras.Layer) -> str:
    return f"the layer {layer.name!r} ({type(layer).__name__})"


def differing_parts(model: keras.Model, copy: keras.Model) -> ModelDifference | None:
    """Return the first layer or variable by which the structures of two models differ, if there is one."""
    there, here = tf_internals.made_layers(model), tf_internals.made_layers(copy)
    made = {id(variable) for variable in variables_in(there)}
    others = [variable.path for variable in model.variables if id(variable) not in made]
    if others:
        return ModelDifference("the variables", ", ".join(others), "none of these")
    a, b = (", ".join(type(layer).__name__ for layer in layers) for layers in (there, here))
    if a != b:
        return ModelDifference("the layers", a, b)
    for layer, a, b in zip(there, _described(there), _described(here), strict=True):
        if a != b:
            return ModelDifference(f"the variables of {_label_of(layer)}", a, b)
    return None


def _described(layers: Sequence[keras.Layer]) -> list[str]:
    """Return the variables of each layer: names, shapes, types, and the earlier layer that also has one.

    Names get running numbers, which copies do not share.
    """
    first: dict[int, int] = {}
    words: list[list[str]] = [[] for _ in layers]
    for number, layer in enumerate(layers):
        for variable in tf_internals.own_variables(layer):
            name = variable.name.rstrip("0123456789").rstrip("_")
            owner = first.setdefault(id(variable), number)
            shared = "" if owner == number else f" of layer {owner}"
            words[number].append(f"{name} {tuple(variable.shape)} {variable.dtype}{shared}")
    return [", ".join(variables) or "none" for variables in words]


def differing_attributes(model: keras.Model, copy: keras.Model) -> list[ModelDifference]:
    """Return the attributes by which a model and its copy of the same structure differ.

    Without those that cannot be restored, and that nothing reads, such as a history.
    """
    there, here = parts_of_model(model), parts_of_model(copy)
    if len(there) != len(here):
        a, b = (", ".join(type(part).__name__ for _, part in parts) for parts in (there, here))
        return [ModelDifference("the layers and optimizers", a, b)]
    comparison = _Comparison(tf_internals.made_layers(model), tf_internals.made_layers(copy))
    pairs = enumerate(zip(there, here, strict=True))
    found = [found for n, ((label, a), (_, b)) in pairs for found in comparison.of_parts(a, b, label, n)]
    if all(difference.patch for difference in found):
        return found
    read = attributes_read(comparison.code)
    return [part for part in found if part.patch or read is None or read >= part.attributes]


class _Comparison:
    """Compares the attributes of two models, each pair of objects once."""

    def __init__(self, there: Sequence[keras.Layer], here: Sequence[keras.Layer]) -> None:
        self._counterparts = {id(a): b for a, b in zip(there, here, strict=True)}
        pairs = zip(variables_in(there), variables_in(here), strict=True)
        self._counterparts |= {id(a): b for a, b in pairs}
        self._names = {a.name: b.name for a, b in zip(there, here, strict=True) if a.name != b.name}
        self._seen: set[int] = set()
        self._met_parts = 0  # parts that a copy has as its own
        self.code: list[Any] = []  # classes and functions
        self._label, self._root = "", 0

    def of_parts(self, there: object, here: object, label: str, root: int) -> Iterator[ModelDifference]:
        """Compare two parts, of which ``root`` is the number."""
        self._label, self._root = label, root
        if isinstance(there, dict):
            yield from self._of_items(there, here, ())
        elif id(there) not in self._seen:
            yield from self._of_objects(there, here, ())

    def _of_objects(
        self, there: object, here: object, steps: tuple[object, ...]
    ) -> Iterator[ModelDifference]:
        self._seen.add(id(there))
        self.code.append(type(there))
        if type(there).__qualname__ != type(here).__qualname__:
            yield self._differ(there, here, steps)
            return
        policies = tf_internals.policy_of(there), tf_internals.policy_of(here)
        if policies[0] is not None and policies[0] != policies[1]:
            yield self._differ(*policies, (*steps, Attribute("dtype_policy")), possible=True)
        held_here = {**vars(here), **attributes_of(here)}
        for name, value in attributes_of(there).items():
            found = held_here.get(name, _MISSING)
            yield from self._of_values(value, found, (*steps, Attribute(name)))

    def _of_values(self, there: object, here: object, steps: tuple[object, ...]) -> Iterator[ModelDifference]:
        counterpart = self._counterparts.get(id(there))
        if counterpart is not None:
            self._met_parts += 1
            if counterpart is not here:
                yield self._differ(there, here, steps)
        elif is_plain(there):
            if not (is_plain(here) and same_plain(there, here, self._names)):
                yield self._differ(there, here, steps, possible=True)
        elif is_symbolic(there):
            return
        elif (array := as_array(there)) is not None:
            if not same_array(array, as_array(here)):
                yield self._differ(there, here, steps, possible=True)
        elif isinstance(there, list | tuple | dict):
            yield from self._of_items(there, here, steps)
        elif id(there) not in self._seen:
            yield from self._of_others(there, here, steps)

    def _of_items(self, there: Any, here: Any, steps: tuple[Any, ...]) -> Iterator[ModelDifference]:
        """Compare two lists or two dictionaries."""
        is_dict = isinstance(there, dict)
        alike = isinstance(here, dict if is_dict else list | tuple)
        if not alike or not (is_dict or len(there) == len(here)):
            yield self._differ(there, here, steps)
            return
        for key, value in there.items() if is_dict else enumerate(there):
            if isinstance(key, str | int):
                found: Any = here.get(key, _MISSING) if is_dict else here[key]
                yield from self._of_values(value, found, (*steps, key))

    def _of_others(self, there: object, here: object, steps: tuple[object, ...]) -> Iterator[ModelDifference]:
        """Compare functions and objects of any class."""
        if callable(there) and hasattr(there, "__qualname__"):
            self.code.append(inspect.unwrap(getattr(there, "__func__", there)))
            if not same_function(there, here):
                yield self._differ(there, here, steps)
        elif isinstance(there, _MADE_BY_CONFIGURATIONS):
            self._met_parts += 1
            yield from self._of_objects(there, here, steps)
        elif _has_own_attributes(there):
            yield from self._of_helpers(there, here, steps)
        elif type(there).__qualname__ != type(here).__qualname__:
            yield self._differ(there, here, steps)

    def _of_helpers(
        self, there: object, here: object, steps: tuple[object, ...]
    ) -> Iterator[ModelDifference]:
        """Compare objects that are not Keras's. One that differs is replaced: others may share it."""
        met_before = self._met_parts
        found = list(self._of_objects(there, here, steps))
        alone = self._met_parts == met_before and all(difference.patch for difference in found)
        whole = Patch.of(self._root, steps, there) if found and alone else None
        yield from (difference._replace(patch=whole) for difference in (found[:1] if whole else found))

    def _differ(
        self, there: object, here: object, steps: tuple[object, ...], *, possible: bool = False
    ) -> ModelDifference:
        patch = Patch.of(self._root, steps, there) if possible else None
        return ModelDifference(
            f"{attribute_path(steps)} of {self._label}" if steps else self._label,
            shown(there), "nothing" if here is _MISSING else shown(here), patch,
            frozenset(step for step in steps if isinstance(step, Attribute)),
        )  # fmt: skip


_MISSING = object()

#: In place of these, a copy has objects of its own, which its configuration makes.
_MADE_BY_CONFIGURATIONS = (
    keras.Layer, keras.Loss, keras.Metric, keras.Optimizer, keras.Initializer, keras.Regularizer,
    keras.constraints.Constraint,
)  # fmt: skip

#: What Keras keeps of the calls and trainings of an object, or gets from its configuration.
_OF_KERAS = frozenset(
    {"name", "built", "compiled", "history", "stop_training", "stop_evaluating", "stop_predicting",
     "trainable", "call_signature_parameters", "optimizer", "loss", "train_function", "test_function",
     "predict_function"}
)  # fmt: skip


def attributes_of(holder: object) -> dict[str, object]:
    """Return the attributes of an object that a user, or the class of a user, has set."""
    of_libraries = tf_internals.names_of_libraries(type(holder))
    ignored = _OF_KERAS if isinstance(holder, keras.Operation | keras.Optimizer) else frozenset()
    held = {**tf_internals.plain_properties(holder), **vars(holder)}
    return {
        name: value
        for name, value in held.items()
        if name not in ignored and (name not in of_libraries or _may_differ(name, value))
        if not name.startswith("_self_")  # of TensorFlow
    }


def _may_differ(name: str, value: object) -> bool:
    """Return whether an attribute that Keras's own code sets may be in no configuration.

    Private ones are how Keras works, and its objects are described.
    """
    return not name.startswith("_") and (is_plain(value) or not tf_internals.is_of_library(type(value)))


def _has_own_attributes(value: object) -> bool:
    """Return whether an object has attributes that a configuration may leave out."""
    if not hasattr(value, "__dict__") or isinstance(value, np.generic | type(np)):
        return False
    kind = type(value)
    return (
        not tf_internals.is_of_library(kind)
        and kind.__module__.partition(".")[0] not in sys.stdlib_module_names
    )
