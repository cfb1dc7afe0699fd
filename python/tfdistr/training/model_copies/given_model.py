"""A compiled model in place of a function: its copies on the workers, and their result in it."""

from __future__ import annotations

import contextlib
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr.errors import ArgumentError
from tfdistr.training.model_copies.in_place import ModelInPlace
from tfdistr.training.model_copies.refusals import cannot_rebuild, cannot_serialize, has_lambda, refuse
from tfdistr.utils.disk import BEFORE_START, writing

if TYPE_CHECKING:
    import keras

    from tfdistr.training.job import Job


class GivenModel:
    """Builds copies of a compiled model, in any process: a function without arguments, for ``Job``.

    A copy has the architecture, the weights, the optimizer with its state, and the arguments of ``compile``.
    It also has what no configuration describes: what may be trained, LoRA, plain attributes, Keras's
    settings. The first copy is compared with the original.

    Attributes:
        original: The caller's model; None in other processes.
        checked: What has been compared: "fingerprint only" or "fingerprint, outputs and gradients".
    """

    def __init__(self, model: keras.Model) -> None:
        if not model.compiled:
            raise ArgumentError(
                "`model` must be compiled.",
                received="a model that was not compiled",
                fix="Call model.compile(optimizer=..., loss=...) before.",
            )
        import tensorflow as tf

        from tfdistr import tf_internals
        from tfdistr.training.keras_settings import KerasSettings
        from tfdistr.training.model_copies.carried_state import CarriedState
        from tfdistr.training.model_copies.corrections import Corrections
        from tfdistr.training.model_copies.module_values import module_values
        from tfdistr.training.model_copies.own_compile import own_compile_saved

        self.original: keras.Model | None = model
        self.checked = "fingerprint only"
        # A part without a policy has the global one of when the model was made, and so has the model.
        self._settings = KerasSettings.here().with_policy(model.dtype_policy)
        self._state = CarriedState.of(model)
        self._corrections = Corrections()
        with own_compile_saved(), tf_internals.whole_configs():
            objects = _describe(model)
            self._own_parts = _own_parts(objects)
            with tempfile.TemporaryDirectory(prefix="tfdistr-model-") as folder:
                path = Path(folder, "model.keras")
                with _quiet("You are saving a model that has not yet been built"):
                    model.save(path)
                # An array is mapped into the memory of the workers, not copied.
                self._archive = np.fromfile(path, np.uint8)
        self._module_values = module_values(self._own_parts.values())
        self._is_sent = False  # the modules of the session have their values
        self._is_compared = False
        with tf_internals.undisturbed_session(), tf.device("CPU:0"):
            copy = self._load()
            self._is_compared = True  # only the first copy: a training changes and builds the original
            self._corrections = Corrections.between(model, copy, self._state)
        self._first_copy: tuple[keras.Model, keras.Model] | None = (model, copy)

    def __call__(self) -> keras.Model:
        """Return a copy of the original model."""
        model = self._load()
        self._corrections.apply(model)
        return model

    def check_outputs(self, batch: Callable[[], object]) -> None:
        """Compare outputs and gradients of the original and a copy, once.

        Nothing is computed for a model whose parts are all Keras's own.
        """
        pair, self._first_copy = self._first_copy, None
        if pair is None or not self._own_parts:
            return
        from tfdistr import tf_internals
        from tfdistr.training.model_copies.output_check import same_outputs

        # A call of the original must not create weights in it.
        inputs = batch() if all(layer.built for layer in tf_internals.made_layers(pair[0])) else None
        if inputs is not None and same_outputs(*pair, inputs):
            self.checked = "fingerprint, outputs and gradients"

    def _load(self) -> keras.Model:
        """Return a copy as the configuration and the weights describe it, with the carried state."""
        import keras

        from tfdistr import tf_internals
        from tfdistr.training.model_copies.own_compile import own_compile_saved

        for value in self._module_values if self._is_sent else ():
            value.restore()
        with tempfile.TemporaryDirectory(prefix="tfdistr-model-") as folder:
            path = Path(folder, "model.keras")
            with writing(path, "The model", needed=lambda: self._archive.nbytes, fix=BEFORE_START):
                self._archive.tofile(path)
            with (
                # The optimizer of a model that was never trained has no state yet. A call of the model
                # builds layers that have no build().
                _quiet("Skipping variable loading for optimizer|`build\\(\\)` was called on layer"),
                self._settings.used(),
                own_compile_saved(),
                tf_internals.loading_with(self._prepare),
            ):
                try:
                    return keras.saving.load_model(path, custom_objects=self._own_parts)
                except ArgumentError:
                    raise
                except Exception as error:  # the user's from_config() can raise anything
                    raise cannot_rebuild(error) from error

    def _prepare(self, model: keras.Model, compile_config: object) -> None:
        """Prepare a copy for its weights. LoRA adds some, and the optimizer has those that are trained."""
        self._state.restore_layers(model)
        if self.original is not None and not self._is_compared:
            from tfdistr.training.model_copies.fingerprint import differing_parts

            refuse(differing_parts(self.original, model))
        self._corrections.apply_attributes(model)
        if compile_config:
            model.compile_from_config(compile_config)
            model.compiled = True  # the class may restore itself without a call of compile()
        self._state.restore_compiled(model)

    def without_original(self) -> GivenModel:
        """Return the same for a job whose result does not change the original."""
        other = object.__new__(GivenModel)
        vars(other).update(vars(self), original=None, _first_copy=None)
        return other

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "original": None, "_first_copy": None, "_is_sent": True}


@contextlib.contextmanager
def _quiet(warning: str) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", warning)
        yield


def given(model: object) -> Any:
    """Return ``GivenModel`` for a Keras model, or the model in place; other values stay unchanged."""
    keras = sys.modules.get("keras")  # it has been imported where there is a model
    if keras is None or not isinstance(model, keras.Model):
        return model
    from tfdistr import tf_internals

    place = tf_internals.function_of_r(model)
    return GivenModel(model) if place is None else ModelInPlace(model, place)


def as_model_factory(model: object) -> Callable[[], keras.Model]:
    """Return a function that copies a Keras model, which itself does not change; other values unchanged."""
    made = given(model)
    if isinstance(made, ModelInPlace) and made is not model:
        made.refuse()
    return made.without_original() if isinstance(made, GivenModel) else made


def check_copy(job: Job) -> None:
    """Compare what a model that was given and its copy compute, if the rows of a job are in memory."""
    if isinstance(job.model, GivenModel):
        from tfdistr.training.model_copies.output_check import first_inputs

        job.model.check_outputs(lambda: first_inputs(job))


def comparison_of(model: object) -> dict[str, Any]:
    """Return the member of the result about a model that was given: what of its copy was compared."""
    return {"model_copy": model.checked} if isinstance(model, GivenModel) else {}


def callers_model(model: object) -> keras.Model | None:
    """Return the model that the caller passed for a job, in the caller's process; None for a function."""
    return model.original if isinstance(model, GivenModel) else None


def _describe(model: keras.Model) -> list[object]:
    """Return the objects in a model that have a name; an error if Keras cannot describe it."""
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
    return objects


def _own_parts(objects: list[Any]) -> dict[str, Any]:
    """Return the user's classes and functions in a model, by the names by which Keras looks for them."""
    import cloudpickle
    import keras

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
            raise cannot_serialize(f"{what}, which cannot be pickled: {error}") from error
        parts[keras.saving.get_registered_name(part)] = part
    return parts
