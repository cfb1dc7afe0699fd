"""The loading of a model by Keras, with a step before its weights are loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras
from keras.src.backend.common import global_state
from keras.src.saving import saving_lib

from tfdistr.tf_internals.keras_loop import existing_seed_generator, no_new_seed_generator
from tfdistr.tf_internals.keras_own import undisturbed_random_numbers
from tfdistr.tf_internals.keras_step import overridden

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
