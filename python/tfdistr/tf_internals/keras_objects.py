"""Private state of Keras objects, which no configuration describes, and the loading of models."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras.src import losses as _losses
from keras.src import metrics as _metrics
from keras.src.backend.common import global_state
from keras.src.saving import saving_lib, serialization_lib

from tfdistr.tf_internals.keras_loop import all_layers, existing_seed_generator, no_new_seed_generator
from tfdistr.tf_internals.keras_own import undisturbed_random_numbers
from tfdistr.tf_internals.keras_step import overridden

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


def stateful_layers(model: keras.Model) -> list[keras.layers.RNN]:
    """Return the recurrent layers of a model that keep their states."""
    layers = [layer for layer in all_layers(model) if isinstance(layer, keras.layers.RNN)]
    return [layer for layer in layers if layer.stateful and layer.states]


@contextlib.contextmanager
def states_of_rows(
    model: keras.Model, own: Callable[[tf.Tensor], tf.Tensor], gather: Callable[[tf.Tensor], tf.Tensor]
) -> Iterator[None]:
    """Make stateful layers use the states of a replica's rows only, within the context.

    A state has the rows of the whole batch, on every worker. (``RNN.states`` is set without Keras's tracking,
    which would take replaced states for new variables. ``RNN._expected_batch_size`` has no public name.)
    """
    layers = stateful_layers(model)
    before = [{name: vars(layer)[name] for name in ("states", "_expected_batch_size")} for layer in layers]
    for layer in layers:
        states = keras.tree.map_structure(lambda state: _State(state, own, gather), layer.states)
        vars(layer).update(states=states, _expected_batch_size=None)
    try:
        yield
    finally:
        for layer, attributes in zip(layers, before, strict=True):
            vars(layer).update(attributes)


class _State:
    """A replica's rows of a state, in place of its variable."""

    def __init__(
        self, variable: keras.Variable, own: Callable[..., object], gather: Callable[..., object]
    ) -> None:
        self._variable, self._own, self._gather = variable, own, gather

    def __tf_tensor__(self, dtype: tf.DType | None = None, name: str | None = None) -> tf.Tensor:
        rows = self._own(tf.convert_to_tensor(self._variable))
        return rows if dtype is None else tf.cast(rows, dtype)

    def assign(self, value: tf.Tensor) -> None:
        self._variable.assign(self._gather(value))


_NAMES = "object_name_uids"  # the running numbers of Keras's names


@contextlib.contextmanager
def loading_with(before_weights: Callable[[keras.Model, Any], None]) -> Iterator[None]:
    """Make ``load_model()`` call a function with the model and its compile configuration, within the context.

    The function compiles the model: Keras would do so before anything can be changed. It runs just before the
    weights are loaded. (``saving_lib`` makes the model by ``deserialize_keras_object`` and has no hook.)
    """
    make = saving_lib.deserialize_keras_object

    def make_and_prepare(config: Any, custom_objects: Any = None, **kwargs: Any) -> object:
        model = make({**config, "compile_config": None}, custom_objects, **kwargs)
        with keras.saving.custom_object_scope(custom_objects or {}):
            before_weights(model, config.get("compile_config"))
        return model

    with overridden(saving_lib, "deserialize_keras_object", make_and_prepare):
        yield


@contextlib.contextmanager
def undisturbed_session() -> Iterator[None]:
    """Restore random numbers and the running numbers of Keras's names after the context.

    (The names have no public state.)
    """
    before = dict(global_state.get_global_attribute(_NAMES) or {})
    generator = existing_seed_generator()
    seed = None if generator is None else generator.state.value.numpy()
    try:
        with undisturbed_random_numbers(), no_new_seed_generator():
            yield
    finally:
        if generator is not None:
            generator.state.assign(seed)
        names = global_state.get_global_attribute(_NAMES)
        if names is not None:
            names.clear()
            names.update(before)


class GraphCall(NamedTuple):
    """A call of an operation in the graph of a functional model."""

    operation: keras.Operation
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: list[keras.KerasTensor]


def graph_calls(model: keras.Model) -> Iterator[GraphCall]:
    """Yield the calls of the operations in a functional model that are no layers, each after its inputs.

    (The calls of an operation, ``_inbound_nodes``, have no public name.)
    """
    for operation in getattr(model, "operations", ()):
        if not isinstance(operation, keras.Layer):
            for node in operation._inbound_nodes:
                yield GraphCall(operation, node.arguments.args, node.arguments.kwargs, node.outputs)


def input_ranks(layer: keras.Layer) -> list[set[int]]:
    """Return the ranks of the inputs of a layer, for each symbolic call. A layer in a layer has no such call.

    (``Layer.input`` has only the inputs of the first call.)
    """
    ranks = [{len(tensor.shape) for tensor in node.input_tensors} for node in layer._inbound_nodes]
    return [each for each in ranks if each]


def given_losses(model: keras.Model) -> list[object]:
    """Return the losses that ``compile`` was given: objects, functions or names."""
    given = getattr(getattr(model, "_compile_loss", None), "_user_loss", None)
    return [loss for loss in keras.tree.flatten(given) if loss is not None]


def named(kind: str, given: object) -> Any:
    """Return the class or the function that Keras uses for the name of a loss or a metric.

    ``keras.metrics.get()`` would create the variables of a metric, so this reads its private table.
    """
    table = _losses.ALL_OBJECTS_DICT if kind == "loss" else _metrics.ALL_OBJECTS_DICT
    return table.get(given, given) if isinstance(given, str) else given


def wrapped_function(part: object) -> tuple[object, dict[str, object]]:
    """Return the function that a loss or a metric of Keras calls, or None, and its other arguments."""
    return getattr(part, "fn", getattr(part, "_fn", None)), getattr(part, "_fn_kwargs", {})


#: The classes of losses and metrics that call any function. The first has no public name.
WRAPPERS: tuple[type, ...] = (_losses.losses.LossFunctionWrapper, keras.metrics.MeanMetricWrapper)
