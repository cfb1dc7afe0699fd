"""The comparison of a model with its copy, without computing: attributes, variables and dtype policies.

A configuration describes a model as its author thought of it. What was set later, or what ``get_config()``
leaves out, is in no configuration. Both models are compared object by object.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from tfdistr import tf_internals
from tfdistr.training.patches import Patch, Step, path_of
from tfdistr.training.plain_values import (
    as_array,
    is_plain,
    is_symbolic,
    same_array,
    same_function,
    same_plain,
    shown,
)


class Part(NamedTuple):
    """A part of a model, with the name by which messages call it."""

    label: str
    value: Any


class Difference(NamedTuple):
    """A difference between a model and its copy.

    Attributes:
        what: Names the attribute and its layer.
        there: What the model has, as text.
        here: What the copy has.
        patch: Makes them equal; None if nothing can.
    """

    what: str
    there: str
    here: str
    patch: Patch | None = None

    def __str__(self) -> str:
        return f"{self.what}: {self.there} in the model, {self.here} in its copy"


def layers_of(model: keras.Model) -> list[keras.Layer]:
    """Return a model and all layers in it, in an order that its copy shares."""
    return [model, *tf_internals.all_layers(model)]


def variables_in(layers: Sequence[keras.Layer]) -> list[keras.Variable]:
    """Return the variables of layers, each once, in an order that a copy shares."""
    found = [variable for layer in layers for variable in tf_internals.own_variables(layer)]
    return list({id(variable): variable for variable in found}.values())


def parts_of(model: keras.Model) -> list[Part]:
    """Return the parts of a compiled model whose attributes are compared."""
    layers = [Part(label_of(layer), layer) for layer in layers_of(model)[1:]]
    optimizers = [Part("the optimizer", part) for part in tf_internals.optimizers_of(model)]
    compiled = Part("compile()", tf_internals.compile_arguments(model))
    return [Part("the model", model), *layers, *optimizers, compiled]


def label_of(layer: keras.Layer) -> str:
    """Return the name of a layer for a message."""
    return f"the layer {layer.name!r} ({type(layer).__name__})"


def differing_parts(model: keras.Model, copy: keras.Model) -> Difference | None:
    """Return the first layer or variable by which the structures of two models differ, if there is one."""
    there, here = layers_of(model), layers_of(copy)
    kinds = [[type(layer).__name__ for layer in layers] for layers in (there, here)]
    if kinds[0] != kinds[1]:
        return Difference("the layers", _listed(kinds[0]), _listed(kinds[1]))
    for layer, its_copy in zip(there, here, strict=True):
        kinds = [list(map(_kind, tf_internals.own_variables(held))) for held in (layer, its_copy)]
        if kinds[0] != kinds[1]:
            return Difference(f"the variables of {label_of(layer)}", _listed(kinds[0]), _listed(kinds[1]))
    for layer, shared, shared_here in zip(there, _sharing(there), _sharing(here), strict=True):
        if shared != shared_here:
            what = f"the variables that {label_of(layer)} shares with earlier layers"
            return Difference(what, _listed(shared), _listed(shared_here))
    return None


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words) or "none"


def _kind(variable: keras.Variable) -> str:
    """Return a variable's name, shape and type. Names get running numbers, which copies do not share."""
    name = variable.name.rstrip("0123456789").rstrip("_")
    return f"{name} {tuple(variable.shape)} {variable.dtype}"


def _sharing(layers: Sequence[keras.Layer]) -> list[list[str]]:
    """Return, for each layer, the variables that an earlier layer also has."""
    first: dict[int, int] = {}
    return [
        [
            f"{variable.name} of layer {first[id(variable)]}"
            for variable in tf_internals.own_variables(layer)
            if first.setdefault(id(variable), number) != number
        ]
        for number, layer in enumerate(layers)
    ]


def differing_attributes(model: keras.Model, copy: keras.Model) -> list[Difference]:
    """Return the attributes by which a model and its copy of the same structure differ."""
    there, here = parts_of(model), parts_of(copy)
    if len(there) != len(here):
        words = [_listed([type(part.value).__name__ for part in parts]) for parts in (there, here)]
        return [Difference("the layers and optimizers", words[0], words[1])]
    comparison = _Comparison(layers_of(model), layers_of(copy))
    return [
        found
        for number, (a, b) in enumerate(zip(there, here, strict=True))
        for found in comparison.of_parts(a.value, b.value, a.label, number)
    ]


class _Comparison:
    """Compares the attributes of two models, each pair of objects once."""

    def __init__(self, there: Sequence[keras.Layer], here: Sequence[keras.Layer]) -> None:
        self._counterparts = {id(a): b for a, b in zip(there, here, strict=True)}
        pairs = zip(variables_in(there), variables_in(here), strict=True)
        self._counterparts |= {id(a): b for a, b in pairs}
        self._names = {a.name: b.name for a, b in zip(there, here, strict=True) if a.name != b.name}
        self._seen: set[int] = set()
        self._met_parts = 0  # parts that a copy has as its own
        self._label, self._root = "", 0

    def of_parts(self, there: Any, here: Any, label: str, root: int) -> Iterator[Difference]:
        """Compare two parts, of which ``root`` is the number."""
        self._label, self._root = label, root
        if isinstance(there, dict):
            yield from self._of_items(there, here, ())
        elif id(there) not in self._seen:
            yield from self._of_objects(there, here, ())

    def _of_objects(self, there: Any, here: Any, steps: tuple[Step, ...]) -> Iterator[Difference]:
        self._seen.add(id(there))
        if type(there).__qualname__ != type(here).__qualname__:
            yield self._differ(there, here, steps)
            return
        policies = tf_internals.policy_of(there), tf_internals.policy_of(here)
        if policies[0] is not None and policies[0] != policies[1]:
            yield self._differ(*policies, (*steps, Step("policy", "dtype_policy")), possible=True)
        held_here = {**vars(here), **attributes_of(here)}
        for name, value in attributes_of(there).items():
            found = held_here.get(name, _MISSING)
            yield from self._of_values(value, found, (*steps, Step("attribute", name)))

    def _of_values(self, there: Any, here: Any, steps: tuple[Step, ...]) -> Iterator[Difference]:
        counterpart = self._counterparts.get(id(there))
        if counterpart is not None:
            self._met_parts += 1
            if counterpart is not here:
                yield self._differ(there, here, steps)
        elif is_plain(there):
            if not (is_plain(here) and same_plain(there, here, self._names)):
                yield self._differ(there, here, steps, possible=True)
        elif is_symbolic(there):
            return  # a trace of a call, which has no value
        elif (array := as_array(there)) is not None:
            if not same_array(array, as_array(here)):
                yield self._differ(there, here, steps, possible=True)
        elif isinstance(there, list | tuple):
            yield from self._of_lists(there, here, steps)
        elif isinstance(there, dict):
            yield from self._of_items(there, here, steps)
        elif id(there) not in self._seen:
            yield from self._of_others(there, here, steps)

    def _of_lists(self, there: Any, here: Any, steps: tuple[Step, ...]) -> Iterator[Difference]:
        if not isinstance(here, list | tuple) or len(there) != len(here):
            yield self._differ(there, here, steps)
            return
        for number, (a, b) in enumerate(zip(there, here, strict=True)):
            yield from self._of_values(a, b, (*steps, Step("item", number)))

    def _of_items(self, there: Any, here: Any, steps: tuple[Step, ...]) -> Iterator[Difference]:
        if not isinstance(here, dict):
            yield self._differ(there, here, steps)
            return
        for key, value in there.items():
            if isinstance(key, str | int):
                yield from self._of_values(value, here.get(key, _MISSING), (*steps, Step("item", key)))

    def _of_others(self, there: Any, here: Any, steps: tuple[Step, ...]) -> Iterator[Difference]:
        """Compare functions and objects of any class."""
        if callable(there) and hasattr(there, "__qualname__"):
            if not same_function(there, here):
                yield self._differ(there, here, steps)
        elif _is_of_keras(there):
            self._met_parts += 1
            yield from self._of_objects(there, here, steps)
        elif _has_own_attributes(there):
            yield from self._of_helpers(there, here, steps)
        elif type(there).__qualname__ != type(here).__qualname__:
            yield self._differ(there, here, steps)

    def _of_helpers(self, there: Any, here: Any, steps: tuple[Step, ...]) -> Iterator[Difference]:
        """Compare objects that are not Keras's. One that differs is replaced: others may share it."""
        met_before = self._met_parts
        found = list(self._of_objects(there, here, steps))
        if not found:
            return
        alone = self._met_parts == met_before
        whole = Patch.of_object(self._root, steps, there) if alone else None
        possible = whole is not None and all(difference.patch is not None for difference in found)
        yield found[0]._replace(patch=whole if possible else None)

    def _differ(
        self, there: Any, here: Any, steps: tuple[Step, ...], *, possible: bool = False
    ) -> Difference:
        patch = Patch.of(self._root, steps, there) if possible else None
        return Difference(
            f"{path_of(steps)} of {self._label}" if steps else self._label,
            shown(there), "nothing" if here is _MISSING else shown(here), patch,
        )  # fmt: skip


_MISSING = object()

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


def attributes_of(holder: Any) -> dict[str, Any]:
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


def _may_differ(name: str, value: Any) -> bool:
    """Return whether an attribute that Keras's own code sets may be in no configuration.

    Private ones are how Keras works, and its objects are described.
    """
    return not name.startswith("_") and (is_plain(value) or not tf_internals.is_of_library(type(value)))


def _has_own_attributes(value: Any) -> bool:
    """Return whether an object has attributes that a configuration may leave out."""
    if not hasattr(value, "__dict__") or isinstance(value, np.generic | type(np)):
        return False
    kind = type(value)
    return (
        not tf_internals.is_of_library(kind)
        and kind.__module__.partition(".")[0] not in sys.stdlib_module_names
    )


def _is_of_keras(value: Any) -> bool:
    """Return whether a copy has an object of its own in place of this one, which its configuration makes."""
    return isinstance(value, _MADE_BY_CONFIGURATIONS)
