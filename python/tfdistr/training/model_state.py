"""The weights and the optimizer state of a model, as arrays for another model, which may be made later."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from zipfile import ZipFile

import attrs
import numpy as np

from tfdistr.errors import ArgumentError
from tfdistr.training.keras_settings import KerasSettings
from tfdistr.training.model_copies.given_model import callers_model
from tfdistr.utils.interrupts import import_tensorflow

if TYPE_CHECKING:
    import keras

Arrays = list[np.ndarray]


class OptimizerValues(NamedTuple):
    """The state of an optimizer.

    Attributes:
        values: Its variables.
        trained: The numbers of the model's variables that it trains; None if they are not known, or if it
            was not used.
    """

    values: Arrays
    trained: list[int] | None


def _others(model: keras.Model) -> list[Any]:
    from tfdistr import tf_internals

    return [optimizer for optimizer in tf_internals.optimizers_of(model) if optimizer is not model.optimizer]


def _state_of(model: keras.Model, optimizer: Any) -> OptimizerValues:
    from tfdistr.checkpoint.variables import trained

    return OptimizerValues(list(map(_storable, optimizer.variables)), trained(model, optimizer))


def _build(model: keras.Model, inputs: object, weights: int) -> None:
    import tensorflow as tf

    from tfdistr.strategies.build import build_by_step, has_call

    batch = map_inputs(inputs, tf.zeros)
    if has_call(model):
        model(batch)
    elif len(model.weights) < weights:
        with contextlib.suppress(Exception):  # the step may need targets, whose shapes are not known here
            build_by_step(model, (batch,) if isinstance(batch, tuple) else batch, optimizers=False)
    if len(model.weights) != weights:
        raise ArgumentError(
            "Cannot build the trained model here: some of its layers get their weights in a step only.",
            received=f"{type(model).__name__} with {len(model.weights)} of {weights} weights",
            fix="Build its layers in the model function, for example with keras.Input() in each network.",
        )
    model.built = True


def _storable(value: object) -> np.ndarray:
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "V" else array  # NumPy's files lack bfloat16


def map_inputs(inputs: Any, make: Callable[[list[int], str], Any]) -> Any:
    """Return the structure of ``Training.inputs``, with ``make(shape, type)`` for each array."""
    if isinstance(inputs, dict):
        return {name: map_inputs(part, make) for name, part in inputs.items()}
    if len(inputs) == 2 and isinstance(inputs[1], str):
        return make(*inputs)
    return tuple(map_inputs(part, make) for part in inputs)


_WEIGHT, _OPTIMIZER, _INPUTS, _TRAINED = "weight_", "optimizer_", "inputs", "trained"
_OTHERS, _OTHER = "others", "other_"


@attrs.frozen(eq=False)
class ModelState:
    """The values of a model.

    Attributes:
        inputs: Shapes and types of a batch of inputs, with which a model can be built; see ``Training``.
        others: The state of other optimizers that the model holds.
    """

    weights: Arrays
    optimizer: OptimizerValues
    inputs: Any
    others: list[OptimizerValues] = attrs.field(factory=list)

    @classmethod
    def of(cls, model: keras.Model, inputs: object) -> ModelState:
        """Return the values that a model has now."""
        weights = [_storable(value) for value in model.get_weights()]
        own = OptimizerValues([], None) if model.optimizer is None else _state_of(model, model.optimizer)
        return cls(weights, own, inputs, [_state_of(model, optimizer) for optimizer in _others(model)])

    def give(self, model: keras.Model) -> keras.Model:
        """Assign these values to a model, which may be not built, and return it."""
        # The cell of an RNN gets the weights of its layers in the first call of the model.
        if not model.built or len(model.weights) < len(self.weights):
            _build(model, self.inputs, len(self.weights))
        model.set_weights(self.weights)
        own = [] if model.optimizer is None else [(model.optimizer, self.optimizer)]
        for held, state in [*own, *zip(_others(model), self.others, strict=True)]:
            if len(state.values) != len(held.variables):  # otherwise it is built, or was not used
                numbers, variables = state.trained, model.variables
                held.build(model.trainable_variables if numbers is None else [variables[n] for n in numbers])
            for variable, value in zip(held.variables, state.values, strict=True):
                variable.assign(value)
        return model

    @property
    def nbytes(self) -> int:
        """The approximate number of bytes of ``write``."""
        arrays = [*self.weights, *(v for state in (self.optimizer, *self.others) for v in state.values)]
        return sum(array.nbytes for array in arrays)

    def write(self, file: Path | IO[bytes]) -> None:
        """Write the values in NumPy's format, without pickles."""
        arrays = {f"{_WEIGHT}{i}": value for i, value in enumerate(self.weights)}
        named = {f"{_OTHER}{number}_": other for number, other in enumerate(self.others)}
        for name, state in {"": self.optimizer, **named}.items():
            arrays |= {f"{name}{_OPTIMIZER}{i}": value for i, value in enumerate(state.values)}
            if state.trained is not None:
                arrays[f"{name}{_TRAINED}"] = np.array(state.trained, np.int64)
        arrays[_OTHERS] = np.array(len(self.others))
        np.savez(file, **arrays, **{_INPUTS: np.array(json.dumps(self.inputs))})  # type: ignore[arg-type]

    @classmethod
    def read(cls, file: IO[bytes]) -> ModelState:
        """Read the values that ``write`` wrote."""
        _check_sizes(file)
        with np.load(file, allow_pickle=False) as state:
            weights = [state[name] for name in state.files if name.startswith(_WEIGHT)]
            others = [_read_optimizer(state, f"{_OTHER}{i}_") for i in range(int(state[_OTHERS]))]
            return cls(weights, _read_optimizer(state, ""), json.loads(str(state[_INPUTS])), others)


def _check_sizes(file: IO[bytes]) -> None:
    """Refuse arrays that claim more bytes than the file has: NumPy allocates what their headers claim."""
    room = file.seek(0, os.SEEK_END)
    with ZipFile(file) as members:
        for name in members.namelist():
            with members.open(name) as member:
                np.lib.format.read_magic(member)
                shape, _, dtype = np.lib.format.read_array_header_1_0(member)
            size = math.prod(shape) * dtype.itemsize
            if not 0 <= size <= room:
                raise ValueError(f"{name} has {size} bytes, says its header, where at most {room} are left")
            room -= size
    file.seek(0)


def _read_optimizer(state: Any, prefix: str) -> OptimizerValues:
    values = [state[name] for name in state.files if name.startswith(f"{prefix}{_OPTIMIZER}")]
    trained = f"{prefix}{_TRAINED}"
    return OptimizerValues(values, state[trained].tolist() if trained in state.files else None)


class LazyModel:
    """A trained model.

    Args:
        recipe: Makes a model of its kind, like the model of a ``Job``.
        build: Makes a model of its kind in this process, if ``recipe`` cannot.
        inputs: The inputs with which a model is built, for ``made``; see ``Training``.
        made: The model, if it is already here.
    """

    def __init__(
        self,
        recipe: object,
        read: Callable[[], ModelState],
        build: Callable[[], keras.Model] | None = None,
        *,
        inputs: object = None,
        made: keras.Model | None = None,
        settings: KerasSettings | None = None,
    ) -> None:
        self.recipe = recipe
        self.settings = settings or KerasSettings()
        self._read = read
        self._build = build
        self._inputs = inputs
        self._model = made

    @property
    def model(self) -> keras.Model:
        """The model. It is made at the first use; a model that the caller gave gets its state then."""
        if self._model is None:
            state = self._read()
            import_tensorflow()
            with self.settings.used():
                model = callers_model(self.recipe) or self.recipe_here()
                self._model, self._inputs = state.give(model), state.inputs
        return self._model

    @property
    def recipe_here(self) -> Any:
        """Return the function that makes a model of its kind in this process."""
        return self._build or self.recipe

    def state(self) -> ModelState:
        """Return the current state of the model."""
        return self._read() if self._model is None else ModelState.of(self._model, self._inputs)

    def with_recipe(self, recipe: object, build: Callable[[], keras.Model] | None = None) -> LazyModel:
        """Return the same state, with another recipe for the model."""
        return LazyModel(recipe, self.state, build, settings=self.settings)
