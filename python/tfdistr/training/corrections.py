"""The corrections of a copy of a model: what its original has, and no configuration describes."""

from __future__ import annotations

import contextlib
from typing import Any

import attrs
import keras
import numpy as np

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError
from tfdistr.training.carried_state import CarriedState
from tfdistr.training.fingerprint import (
    differing_attributes,
    differing_parts,
    layers_of,
    parts_of,
    variables_in,
)
from tfdistr.training.given_model import PASS_A_FUNCTION
from tfdistr.training.patches import Patch
from tfdistr.training.plain_values import array_of, same_array

Arrays = dict[int, np.ndarray[Any, Any]]


@attrs.frozen
class Corrections:
    """What is changed in each copy of a model after Keras has loaded it. It can be pickled.

    Attributes:
        patches: The attributes.
        values: The values of variables that Keras does not save as they are, by their numbers.
        optimizers: The same for the variables of all optimizers.
    """

    patches: list[Patch] = attrs.field(factory=list)
    values: Arrays = attrs.field(factory=dict)
    optimizers: Arrays = attrs.field(factory=dict)

    @classmethod
    def between(cls, model: keras.Model, copy: keras.Model, state: CarriedState) -> Corrections:
        """Correct the first copy of a model, and return how.

        Raises:
            ArgumentError: The copy differs, and cannot be corrected.
        """
        found = differing_attributes(model, copy)
        _refuse(next((difference for difference in found if difference.patch is None), None))
        corrections = cls(
            [difference.patch for difference in found if difference.patch is not None],
            _differing(_variables(model), _variables(copy)),
            _differing(_of_optimizers(model), _of_optimizers(copy)),
        )
        roots = _roots(copy)
        for difference in found:
            assert difference.patch is not None
            try:
                difference.patch.apply(roots)
            except Exception as error:  # the class of the user may refuse it
                raise _cannot_copy(str(difference)) from error
        corrections.apply(copy)
        _refuse(next(iter(differing_attributes(model, copy)), None))
        _refuse(state.difference(copy))
        return corrections

    def try_attributes(self, copy: keras.Model) -> None:
        """Set the attributes that already have a place in a copy, which is not compiled yet."""
        roots = _roots(copy)
        for patch in self.patches:
            with contextlib.suppress(Exception):  # others have their place after compile()
                patch.apply(roots)

    def apply(self, copy: keras.Model) -> None:
        """Correct a copy."""
        roots = _roots(copy)
        for patch in self.patches:
            patch.apply(roots)
        for held, values in ((_variables(copy), self.values), (_of_optimizers(copy), self.optimizers)):
            for number, value in values.items():
                held[number].assign(value)


def check_parts(model: keras.Model, copy: keras.Model) -> None:
    """Check that a copy has the layers and variables of a model.

    Raises:
        ArgumentError: It has others.
    """
    _refuse(differing_parts(model, copy))


def _roots(model: keras.Model) -> list[Any]:
    return [part.value for part in parts_of(model)]


def _variables(model: keras.Model) -> list[keras.Variable]:
    """Return the variables whose values a copy takes over. Its random numbers follow the seed of the job."""
    seeds = {id(generator.state) for generator in tf_internals.seed_generators(model)}
    return [variable for variable in variables_in(layers_of(model)) if id(variable) not in seeds]


def _of_optimizers(model: keras.Model) -> list[keras.Variable]:
    return [variable for optimizer in tf_internals.optimizers_of(model) for variable in optimizer.variables]


def _differing(there: list[keras.Variable], here: list[keras.Variable]) -> Arrays:
    """Return the values of variables that their counterparts do not have."""
    if len(there) != len(here):  # an optimizer that is built for the first step
        return {}
    pairs = enumerate(zip(map(array_of, there), map(array_of, here), strict=True))
    return {number: a for number, (a, b) in pairs if not same_array(a, b)}


def _refuse(difference: Any) -> None:
    if difference is not None:
        raise _cannot_copy(str(difference))


def _cannot_copy(received: str) -> ArgumentError:
    return ArgumentError(
        "Cannot copy `model` exactly for the workers.",
        received=received,
        fix=f"Describe it in get_config(), or {PASS_A_FUNCTION}",
    )
