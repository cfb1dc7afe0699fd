"""The state of a trained model: the weights and the optimizer state, for another model of its kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import attrs
import numpy as np

from tfdistr.training.model_values import OptimizerValues, set_values, values_of
from tfdistr.utils.trusted_files import open_own

if TYPE_CHECKING:
    import keras

_WEIGHT, _OPTIMIZER, _INPUTS, _TRAINED = "weight_", "optimizer_", "inputs", "trained"
_OTHERS, _OTHER = "others", "other_"
_Array = np.ndarray[Any, Any]


@attrs.frozen(eq=False)
class ModelState:
    """The values of a model.

    Attributes:
        weights: The weights.
        optimizer: The variables of the optimizer.
        inputs: Shapes and types of a batch of inputs, with which a model can be built; see ``Training``.
        trained: The numbers of the variables that the optimizer trains; None if they are not known.
        others: The state of other optimizers that the model holds.
    """

    weights: list[_Array]
    optimizer: list[_Array]
    inputs: Any
    trained: list[int] | None = None
    others: list[OptimizerValues] = attrs.field(factory=list)

    @classmethod
    def of(cls, model: keras.Model, inputs: Any) -> ModelState:
        """The values that a model has now."""
        weights, own, others = values_of(model)
        return cls(weights, own.values, inputs, own.trained, others)

    def give(self, model: keras.Model) -> keras.Model:
        """Give a model, which may be not built, these values, and return it."""
        own = OptimizerValues(self.optimizer, self.trained)
        set_values(model, self.weights, own, self.others, self.inputs)
        return model

    @property
    def nbytes(self) -> int:
        """About how many bytes ``write`` writes."""
        arrays = [*self.weights, *self.optimizer, *(v for other in self.others for v in other.values)]
        return sum(array.nbytes for array in arrays)

    def write(self, file: Path | IO[bytes]) -> None:
        """Write the values in NumPy's format, without pickles."""
        arrays = {f"{_WEIGHT}{i}": value for i, value in enumerate(self.weights)}
        arrays |= {f"{_OPTIMIZER}{i}": value for i, value in enumerate(self.optimizer)}
        if self.trained is not None:
            arrays[_TRAINED] = np.array(self.trained, np.int64)
        arrays[_OTHERS] = np.array(len(self.others))
        for number, other in enumerate(self.others):
            name = f"{_OTHER}{number}_"
            arrays |= {f"{name}{_OPTIMIZER}{i}": value for i, value in enumerate(other.values)}
            if other.trained is not None:
                arrays[f"{name}{_TRAINED}"] = np.array(other.trained, np.int64)
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
            own = _read_optimizer(state, "")
            others = [_read_optimizer(state, f"{_OTHER}{i}_") for i in range(int(state[_OTHERS]))]
            return cls(weights, own.values, json.loads(str(state[_INPUTS])), own.trained, others)


def _read_optimizer(state: Any, prefix: str) -> OptimizerValues:
    values = [state[name] for name in state.files if name.startswith(f"{prefix}{_OPTIMIZER}")]
    trained = f"{prefix}{_TRAINED}"
    return OptimizerValues(values, state[trained].tolist() if trained in state.files else None)
