"""A compiled model in place of a function: its copies on the workers, and their result in it."""

from __future__ import annotations

import contextlib
import copy
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr.errors import ArgumentError
from tfdistr.utils.disk import BEFORE_START, writing

if TYPE_CHECKING:
    import keras

#: The fix that always helps.
PASS_A_FUNCTION = "pass a function that builds and compiles the model: every worker calls it."


class GivenModel:
    """Builds copies of a compiled model, in any process: a function without arguments, for ``Job``.

    A copy has the architecture, the weights, the optimizer with its state, and the arguments of ``compile``.

    Attributes:
        original: The caller's model; None in other processes.

    Raises:
        ArgumentError: The model is not compiled, or has a part that other processes cannot have.
    """

    def __init__(self, model: keras.Model) -> None:
        if not model.compiled:
            raise ArgumentError(
                "`model` must be compiled.",
                received="a model that was not compiled",
                fix="Call model.compile(optimizer=..., loss=...) before.",
            )
        from tfdistr import tf_internals
        from tfdistr.training.own_compile import assumed_defaults, own_compile_saved

        self.original: keras.Model | None = model
        self._dtype_policy: str = model.dtype_policy.name
        with own_compile_saved(), tf_internals.whole_configs():
            described, objects = _describe(model)
            self._own_parts = _own_parts(model, objects)
            with tempfile.TemporaryDirectory(prefix="tfdistr-model-") as folder:
                path = Path(folder, "model.keras")
                with _quiet("You are saving a model that has not yet been built"):
                    model.save(path)
                # An array is mapped into the memory of the workers, not copied.
                self._archive = np.fromfile(path, np.uint8)
        if assumed_defaults(described):
            self()  # raise the error of a differing copy here, not in each worker

    def __call__(self) -> keras.Model:
        """Return a copy of the original model."""
        import keras

        from tfdistr.training.own_compile import own_compile_saved

        with tempfile.TemporaryDirectory(prefix="tfdistr-model-") as folder:
            path = Path(folder, "model.keras")
            with writing(path, "The model", needed=lambda: self._archive.nbytes, fix=BEFORE_START):
                self._archive.tofile(path)
            # The optimizer of a model that was never trained has no state yet.
            with (
                _quiet("Skipping variable loading for optimizer"),
                own_compile_saved(),
                _compiled_under(self._dtype_policy),
            ):
                return keras.saving.load_model(path, custom_objects=self._own_parts)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "original": None}


@contextlib.contextmanager
def _compiled_under(policy: str) -> Iterator[None]:
    """Make ``compile()`` scale the loss within the context as it did for a model with this dtype policy.

    Keras reads the policy of the model, which a saved model takes from the global one.
    """
    import keras

    before = keras.config.dtype_policy()
    if policy == "mixed_float16":
        keras.config.set_dtype_policy(policy)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


@contextlib.contextmanager
def _quiet(warning: str) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", warning)
        yield


def given(model: Any) -> Any:
    """Return ``GivenModel`` for a Keras model; other values stay unchanged."""
    keras = sys.modules.get("keras")  # it has been imported where there is a model
    return GivenModel(model) if keras is not None and isinstance(model, keras.Model) else model


def as_model_factory(model: Any) -> Any:
    """Return a function that copies a Keras model, which itself does not change; other values unchanged."""
    made = given(model)
    return copy.copy(made) if isinstance(made, GivenModel) else made  # a copy has no original


def callers_model(model: Any) -> keras.Model | None:
    """Return the model that the caller passed for a job, in the caller's process; None for a function."""
    return model.original if isinstance(model, GivenModel) else None


def _describe(model: keras.Model) -> tuple[dict[str, Any], list[Any]]:
    """Return the description of a model, and the objects in it that have a name."""
    from tfdistr import tf_internals

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Keras warns of objects that are refused below
            described, objects = tf_internals.serialized(model)
    except ArgumentError:
        raise
    except Exception as error:  # the user's get_config() can raise anything
        reason = str(error).strip().partition("\n")[0]
        part = f"a part that Keras cannot describe: {type(error).__name__}: {reason}"
        raise cannot_serialize(part) from error
    if has_lambda(described):
        raise cannot_serialize("a lambda, which has no name")
    return described, objects


def _own_parts(model: keras.Model, objects: list[Any]) -> dict[str, Any]:
    """Return the user's classes and functions in a model, by the names by which Keras looks for them."""
    import cloudpickle
    import keras

    from tfdistr import tf_internals

    parts = {}
    for found in objects:
        part = found if isinstance(found, FunctionType | type) else type(found)
        module = part.__module__ or ""
        if module.partition(".")[0] in ("keras", "builtins"):
            continue
        try:
            cloudpickle.dumps(part)
        except Exception as error:  # the pickling code of an object can raise anything
            what = f"the {'class' if isinstance(part, type) else 'function'} {part.__name__!r} of {module}"
            place = tf_internals.function_of_r(model)
            if place is not None:
                what = f"an R function ({place})"
            raise cannot_serialize(f"{what}, which cannot be pickled: {error}") from error
        parts[keras.saving.get_registered_name(part)] = part
    return parts


def cannot_serialize(what: str, fix: str | None = None) -> ArgumentError:
    """Return the error for a part of a model; ``fix`` is an alternative to passing a function."""
    usual = "Use named functions, and classes with `get_config()`, without references to this process"
    return ArgumentError(
        "Cannot serialize `model` for the workers.",
        received=what,
        fix=f"{fix or usual}, or {PASS_A_FUNCTION}",
    )


def has_lambda(config: Any) -> bool:
    """Return whether the description of a model has a lambda."""
    if isinstance(config, dict):
        return config.get("class_name") == "__lambda__" or any(map(has_lambda, config.values()))
    return isinstance(config, list | tuple) and any(map(has_lambda, config))
