"""The Keras description of a model, from which another process makes a model without the user's function.

A description may come from a file that others could have changed, and Keras imports and calls the objects in
it. So each object is checked before Keras sees it, on every version of Keras.
"""

from __future__ import annotations

import json
import operator
import sys
from collections.abc import Iterator
from types import FunctionType

import keras

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError

#: The Keras classes of which a model may consist, with all that derive from them.
_PARTS = (
    keras.Operation,  # layers, models, and the operations of functional models
    keras.Loss, keras.Metric, keras.optimizers.Optimizer, keras.optimizers.schedules.LearningRateSchedule,
    keras.initializers.Initializer, keras.regularizers.Regularizer, keras.constraints.Constraint,
    keras.DTypePolicy, keras.dtype_policies.DTypePolicyMap,
)  # fmt: skip
#: Layers that run a function, a pickle or a saved program. Layers with `save_assets` read files.
_REFUSED = ("Lambda", "TorchModuleWrapper", "TFSMLayer", "JaxLayer", "FlaxLayer")
#: Values that are no objects of a class.
_VALUES = ("__keras_tensor__", "__tensor__", "__numpy__", "__bytes__", "__ellipsis__", "__slice__")
#: The modules of Keras's own functions, and functions there that are no part of a model.
_FUNCTIONS = ("activations", "losses", "metrics")
_MAKERS = ("get", "serialize", "deserialize")


def describe_model(model: keras.Model) -> str | None:
    """Return the description of a model, without values, for `made_again`.

    None if the description is not enough: the model has a part that is not Keras's, or a layer with a table.
    """
    try:
        described, parts = tf_internals.serialized(model)
        text = json.dumps(described)
    except Exception:  # the user's get_config() can raise anything
        return None
    kinds = [part if isinstance(part, FunctionType | type) else type(part) for part in parts]
    of_keras = all((kind.__module__ or "").partition(".")[0] in ("keras", "builtins") for kind in kinds)
    return text if of_keras and not any(_foreign(json.loads(text))) else None


def made_again(description: str) -> keras.Model:
    """Return a compiled model with a description of `describe_model`; its values are new."""
    try:
        described = json.loads(description)
        received = next(_foreign(described), None)
    except (ValueError, RecursionError) as error:
        received = f"no description: {error}"
    if received is not None:
        raise ArgumentError(
            "The description of a model may only name Keras classes, and classes that you have registered.",
            received=received,
            fix="Remove description.json from the run directory: if you have not changed it, others have. "
            "Then the model function makes the model.",
        )
    return keras.saving.deserialize_keras_object(described, safe_mode=True)


def _foreign(value: object, place: str = "model") -> Iterator[str]:
    """Yield the parts of a description that may not be part of a model, each with its place."""
    if isinstance(value, dict):
        if "class_name" in value and not _is_part(value):
            name = value.get("config") if value["class_name"] == "function" else value["class_name"]
            yield f"{value.get('module')}.{name} at {place}"
        for key, part in value.items():
            yield from _foreign(part, f"{place}.{key}")
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _foreign(part, f"{place}[{number}]")


def _is_part(described: dict[str, object]) -> bool:
    """Return whether the description of an object leads Keras to a part of a model."""
    name, module = described["class_name"], described.get("module")
    if name == "function":
        function = described.get("config")
        return isinstance(function, str) and (_is_registered(function) or _is_function(module, function))
    if not isinstance(name, str):
        return False
    return name in _VALUES or _is_registered(described.get("registered_name")) or _is_class(module, name)


def _is_registered(name: object) -> bool:
    return isinstance(name, str) and keras.saving.get_registered_object(name) is not None


def _is_class(module: object, name: str) -> bool:
    kind = _object_of(module, name)
    return (
        isinstance(kind, type)
        and issubclass(kind, _PARTS)
        and _is_of_keras(kind)
        and not any(base.__name__ in _REFUSED for base in kind.__mro__)
        and not hasattr(kind, "save_assets")
    )


def _is_function(module: object, name: str) -> bool:
    modules = [f"keras.{known}" for known in _FUNCTIONS]
    found = [_object_of(known, name) for known in modules if module in ("builtins", known)]
    functions = [function for function in found if isinstance(function, FunctionType)]
    return bool(functions) and all(map(_is_of_keras, functions)) and name not in _MAKERS


def _object_of(module: object, name: str) -> object:
    """Return the Keras object with a name, without an import; None if there is none."""
    if not isinstance(module, str) or module.partition(".")[0] != "keras":
        return None
    try:
        holder = sys.modules.get(module) or operator.attrgetter(module.partition(".")[2])(keras)
    except AttributeError:
        return None
    return vars(holder).get(name)


def _is_of_keras(found: object) -> bool:
    return (found.__module__ or "").partition(".")[0] == "keras"
