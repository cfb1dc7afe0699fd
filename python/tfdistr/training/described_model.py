"""A model as Keras describes it: another process makes a model of its kind without the user's function."""

from __future__ import annotations

import json
from types import FunctionType

import keras

from tfdistr import _private
from tfdistr.training.serializable import has_lambda


def describe_model(model: keras.Model) -> str | None:
    """The description of a model, without values, for `made_again`.

    None if the description is not enough: the model has a part that is not of Keras, or a layer with a table.
    """
    if any(hasattr(layer, "save_assets") for layer in _private.all_layers(model)):
        return None
    try:
        described, parts = _private.serialized(model)
        text = json.dumps(described)
    except Exception:  # get_config() of the user can raise anything
        return None
    kinds = [part if isinstance(part, FunctionType | type) else type(part) for part in parts]
    of_keras = all((kind.__module__ or "").partition(".")[0] in ("keras", "builtins") for kind in kinds)
    return text if of_keras and not has_lambda(described) else None


def made_again(description: str) -> keras.Model:
    """A compiled model with a description of `describe_model`; its values are new."""
    return keras.saving.deserialize_keras_object(json.loads(description))
