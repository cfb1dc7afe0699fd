"""State of Keras objects that has no public name, and that no configuration describes."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import re
from collections.abc import Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import keras
from keras.src.backend.common import global_state
from keras.src.saving import serialization_lib

_LIBRARIES = ("keras", "tensorflow")


def is_of_library(kind: type) -> bool:
    """Return whether a class is one of Keras or TensorFlow."""
    return (kind.__module__ or "").partition(".")[0] in _LIBRARIES


def names_of_libraries(kind: type) -> frozenset[str]:
    """Return the attributes that the code of Keras and TensorFlow sets in objects of a class.

    Private ones are how Keras works. Their names differ between versions, so they are read from its code.
    """
    return frozenset().union(*map(_names_of, filter(is_of_library, kind.__mro__)))


@functools.cache
def _names_of(base: type) -> frozenset[str]:
    functions = [function for value in vars(base).values() for function in functions_of(value)]
    return frozenset().union(*(names_in(function.__code__, "STORE_ATTR") for function in functions))


def plain_properties(holder: object) -> dict[str, Any]:
    """Return the plain properties of Keras that can be set in an object, such as ``supports_masking``.

    Their values are in private attributes.
    """
    found = {}
    for name in {name for base in filter(is_of_library, type(holder).__mro__) for name in _settable(base)}:
        with contextlib.suppress(Exception):  # a property may have no value yet
            value = getattr(holder, name)
            if isinstance(value, bool | int | float | str | None):
                found[name] = value
    return found


@functools.cache
def _settable(base: type) -> frozenset[str]:
    held = vars(base).items()
    return frozenset(name for name, value in held if isinstance(value, property) and value.fset is not None)


def functions_of(value: object) -> list[FunctionType]:
    """Return the functions of a class attribute: a method, a property, or a decorated function."""
    found: list[Any] = [getattr(value, "__func__", value)]
    if isinstance(value, property):
        found = [value.fget, value.fset]
    return [part for part in map(inspect.unwrap, found) if isinstance(part, FunctionType)]


def names_in(code: CodeType, *operations: str) -> frozenset[str]:
    """Return the names and texts that operations of a code have, by how the operations' names begin."""
    steps = [step for step in dis.get_instructions(code) if step.opname.startswith(operations)]
    inner = [names_in(part, *operations) for part in code.co_consts if isinstance(part, CodeType)]
    return frozenset(step.argval for step in steps if isinstance(step.argval, str)).union(*inner)


def made_layers(model: keras.Layer) -> list[keras.Layer]:
    """Return a model and all layers in it that its class or its configuration makes, in a stable order.

    ``_flatten_layers()`` also has models that the user keeps as attributes of Keras's own models.
    """
    made, known = [model], {id(model)}
    for layer in made:
        is_own = isinstance(layer, keras.Model) and is_of_library(type(layer))
        for part in layer.layers if is_own else layer._layers:
            if id(part) not in known:
                known.add(id(part))
                made.append(part)
    return made


def own_variables(layer: keras.Layer) -> list[keras.Variable]:
    """Return the variables of a layer without those of the layers in it, whatever can be trained."""
    generators = [generator.state for generator in layer._seed_generators]
    return [*layer._trainable_variables, *layer._non_trainable_variables, *generators]


def has_trainable_flag(layer: keras.Layer) -> bool:
    """Return the layer's own ``trainable``. A subclass may replace the public property."""
    return bool(layer._trainable)


def policy_of(part: object) -> keras.DTypePolicy | None:
    """Return the dtype policy of a layer, a loss or a metric. Losses have no public name for it."""
    policy = getattr(part, "_dtype_policy", None)
    return policy if isinstance(policy, keras.DTypePolicy) else None


def set_policy(part: Any, policy: keras.DTypePolicy) -> None:
    """Set the dtype policy of a layer, a loss or a metric. Only layers have a public way."""
    part._dtype_policy = policy
    if not isinstance(part, keras.Layer) and hasattr(part, "_dtype"):
        part._dtype = policy.compute_dtype if isinstance(part, keras.Loss) else policy.name


class Exclusions(NamedTuple):
    """The exclusions that ``exclude_from_weight_decay()`` has set in an optimizer.

    Attributes:
        variables: The numbers of the variables, among those of the model.
        pattern: A pattern of names; None without one.
    """

    variables: tuple[int, ...] = ()
    pattern: str | None = None


def exclusions_of(optimizer: Any, variables: Sequence[keras.Variable]) -> Exclusions:
    """Return the variables without weight decay. There is no public way to read them."""
    keys = getattr(optimizer, "_exclude_from_weight_decay", None) or ()
    numbers = tuple(n for n, variable in enumerate(variables) if optimizer._var_key(variable) in keys)
    pattern = getattr(optimizer, "_exclude_from_weight_decay_pattern", None)
    return Exclusions(numbers, pattern.pattern if isinstance(pattern, re.Pattern) else None)


def exclude(optimizer: Any, excluded: Exclusions, variables: Sequence[keras.Variable]) -> None:
    """Exclude variables from weight decay. The public method refuses an optimizer that is built."""
    optimizer._exclude_from_weight_decay = {optimizer._var_key(variables[n]) for n in excluded.variables}
    pattern = excluded.pattern
    optimizer._exclude_from_weight_decay_pattern = None if pattern is None else re.compile(pattern)
    optimizer._exclude_from_weight_decay_cache = {}


def in_safe_mode() -> bool | None:
    """Return False after ``keras.config.enable_unsafe_deserialization()``, which has no public getter."""
    mode = serialization_lib.in_safe_mode()
    return None if mode is None else bool(mode)


def set_safe_mode(mode: bool | None) -> None:
    """Set what ``in_safe_mode`` returns. The public function only makes it False."""
    global_state.set_global_attribute("safe_mode_saving", mode)
