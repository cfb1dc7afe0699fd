"""The state of a trained model: the weights and the optimizer state, for another model of its kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import attrs
import numpy as np

from tfdistr._utils.trusted_files import open_own
from tfdistr.training.model_values import set_values, trained_numbers, values_of

if TYPE_CHECKING:
    import keras

_WEIGHT, _OPTIMIZER, _INPUTS, _TRAINED = "weight_", "optimizer_", "inputs", "trained"
_Array = np.ndarray[Any, Any]


@attrs.frozen(eq=False)
class ModelState:
    """The values of a model.

    Attributes:
        weights: The weights.
        optimizer: The variables of the optimizer.
        inputs: Shapes and types of a batch of inputs, with which a model can be built; see ``Training``.
        trained: The numbers of the variables that the optimizer trains; None if they are not known.
    """

    weights: list[_Array]
    optimizer: list[_Array]
    inputs: Any
    trained: list[int] | None = None

    @classmethod
    def of(cls, model: keras.Model, inputs: Any) -> ModelState:
        """The values that a model has now."""
        return cls(*values_of(model), inputs, trained_numbers(model))

    def give(self, model: keras.Model) -> keras.Model:
        """Give a model, which may be not built, these values, and return it."""
        set_values(model, self.weights, self.optimizer, self.inputs, self.trained)
        return model

    def write(self, file: Path | IO[bytes]) -> None:
        """Write the values in NumPy's format, without pickles."""
        arrays = {f"{_WEIGHT}{i}": value for i, value in enumerate(self.weights)}
        arrays |= {f"{_OPTIMIZER}{i}": value for i, value in enumerate(self.optimizer)}
        if self.trained is not None:
            arrays[_TRAINED] = np.array(self.trained, np.int64)
        np.savez(file, **arrays, **{_INPUTS: np.array(json.dumps(self.inputs))})  # type: ignore[arg-type]

    @classmethod
    def read(cls, file: Path | IO[bytes]) -> ModelState:
        """Read the values that ``write`` wrote.

        Raises:
            TfdistrError: Another user could have written it.
        """
        if isinstance(file, Path):
            with open_own(file) as opened:
                return cls.read(opened)
        with np.load(file, allow_pickle=False) as state:
            weights = [state[name] for name in state.files if name.startswith(_WEIGHT)]
            optimizer = [state[name] for name in state.files if name.startswith(_OPTIMIZER)]
            trained = state[_TRAINED].tolist() if _TRAINED in state.files else None
            return cls(weights, optimizer, json.loads(str(state[_INPUTS])), trained)
