"""Copies of models whose class overrides ``compile()``, such as the tasks of keras-hub.

Keras saves the arguments of its own ``compile()``, but not those that a subclass adds. These are found in the
model: as an attribute with the name of the argument, or among Keras's arguments. In a copy, the ``compile()``
of the class is called with them, and Keras's ``compile()`` within it receives the arguments of the original.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Iterator
from typing import Any

import keras

from tfdistr import tf_internals
from tfdistr.checkpoint.variables import trained_by
from tfdistr.training.model_copies.refusals import cannot_serialize, has_lambda

_FIX = (
    "Keep each argument of compile() as an attribute of the same name, or define get_compile_config() and "
    "compile_from_config()"
)
_MISSING = object()

Config = dict[str, Any]


@contextlib.contextmanager
def own_compile_saved() -> Iterator[None]:
    """Let Keras save and restore a model with the ``compile()`` of its class, within the context."""
    with (
        tf_internals.overridden(keras.Model, "get_compile_config", _get_compile_config),
        tf_internals.overridden(keras.Model, "compile_from_config", _compile_from_config),
    ):
        yield


def _has_own_compile(kind: type[keras.Model]) -> bool:
    """Return whether a class overrides ``compile()`` without methods that describe its call."""
    usual = keras.Model
    return kind.compile is not usual.compile and kind.compile_from_config is usual.compile_from_config


def _get_compile_config(model: keras.Model) -> Config:
    """Replace ``keras.Model.get_compile_config``; also describe the arguments that a subclass adds."""
    kind = type(model)
    given = tf_internals.compile_arguments(model)
    own_config = kind.get_compile_config is not keras.Model.get_compile_config
    if not given or own_config or not _has_own_compile(kind):
        described: Config = super(keras.Model, model).get_compile_config()
        return described
    trained_by(model)  # refuses optimizers that train variables outside the model
    of_keras = {name: _serialized(kind, name, value) for name, value in given.items()}
    own: Config = {}
    for name, parameter in inspect.signature(kind.compile).parameters.items():
        if name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = _value_of(model, name, given)
        if value is not _MISSING:
            own[name] = _serialized(kind, name, value)
        elif parameter.default is parameter.empty:
            received = f"`{name}` of {kind.__name__}.compile(), which the model does not keep"
            raise cannot_serialize(received, _FIX)
    return {"own": own, "keras": of_keras}


def _value_of(model: keras.Model, name: str, given: Config) -> Any:
    """Return the argument ``name`` of ``compile()``; ``given`` are those of Keras's."""
    held = vars(model)
    value = held.get(name, given.get(name, held.get(f"_{name}", _MISSING)))
    inner = getattr(value, "inner_optimizer", _MISSING)  # Keras may have put it into a LossScaleOptimizer
    return inner if inner is given.get(name) else value


def _serialized(kind: type, name: str, value: object) -> object:
    what = f"`{name}` of {kind.__name__}.compile()"
    try:
        config = keras.saving.serialize_keras_object(value)
        json.dumps(config)
    except Exception as error:  # the user's get_config() can raise anything
        reason = str(error).strip().partition("\n")[0]
        what += f": {type(value).__name__}, which Keras cannot describe: {reason}"
        raise cannot_serialize(what) from error
    if has_lambda(config):
        raise cannot_serialize(f"{what}: a lambda, which has no name")
    return config


def _compile_from_config(model: keras.Model, config: Config) -> None:
    """Replace ``keras.Model.compile_from_config``: compile from a result of ``_get_compile_config``.

    Optimizers are built later, for the variables that they train in the original.
    """
    if "own" not in config or not _has_own_compile(type(model)):  # or the class has a get_compile_config()
        model.compile(**keras.saving.deserialize_keras_object(config))
        return
    own, of_keras = (keras.saving.deserialize_keras_object(config[part]) for part in ("own", "keras"))
    _compile(model, own, of_keras)


def _compile(model: keras.Model, own: Config, of_keras: Config) -> None:
    """Call ``compile()`` of a model's class; ``of_keras`` takes the place of what it passes to Keras."""
    usual = keras.Model.compile

    def compile_as_before(called: keras.Model, *args: object, **kwargs: object) -> None:
        if called is model:
            usual(model, **of_keras)
        else:
            usual(called, *args, **kwargs)

    with tf_internals.overridden(keras.Model, "compile", compile_as_before):
        try:
            model.compile(**own)
        except Exception as error:  # the user's code can raise anything
            call = f"{type(model).__name__}.compile({', '.join(own)})"
            raise cannot_serialize(f"{call}, which raised {type(error).__name__}: {error}", _FIX) from error
