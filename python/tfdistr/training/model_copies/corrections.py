"""The corrections of a copy of a model: what its original has, and no configuration describes."""

from __future__ import annotations

import contextlib

import attrs
import keras
import numpy as np

from tfdistr import tf_internals
from tfdistr.training.model_copies.carried_state import CarriedState
from tfdistr.training.model_copies.fingerprint import (
    differing_attributes,
    parts_of_model,
    variables_in,
)
from tfdistr.training.model_copies.patches import Patch
from tfdistr.training.model_copies.plain_values import array_of, same_array
from tfdistr.training.model_copies.refusals import refuse

Arrays = dict[int, np.ndarray]


@attrs.frozen
class Corrections:
    """The changes to each copy of a model after Keras has loaded it. They can be pickled.

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
        """Correct the first copy of a model, and return how."""
        found = differing_attributes(model, copy)
        refuse(next((difference for difference in found if difference.patch is None), None))
        corrections = cls(
            [difference.patch for difference in found if difference.patch is not None],
            _differing(_variables(model), _variables(copy)),
            _differing(_of_optimizers(model), _of_optimizers(copy)),
        )
        corrections.apply(copy)
        refuse(next(iter(differing_attributes(model, copy)), None))
        refuse(state.difference(copy))
        return corrections

    def apply_attributes(self, copy: keras.Model) -> None:
        """Set the attributes that have a place in a copy. Some have theirs after ``compile()``."""
        roots = [part for _, part in parts_of_model(copy)]
        for patch in self.patches:
            with contextlib.suppress(Exception):  # the class of the user may refuse it
                patch.apply(roots)

    def apply(self, copy: keras.Model) -> None:
        """Correct a copy."""
        self.apply_attributes(copy)
        for held, values in ((_variables(copy), self.values), (_of_optimizers(copy), self.optimizers)):
            for number, value in values.items():
                held[number].assign(value)


def _variables(model: keras.Model) -> list[keras.Variable]:
    """Return the variables whose values a copy takes over. Its random numbers follow the seed of the job."""
    seeds = {id(generator.state) for generator in tf_internals.seed_generators(model)}
    variables = variables_in(tf_internals.made_layers(model))
    return [variable for variable in variables if id(variable) not in seeds]


def _of_optimizers(model: keras.Model) -> list[keras.Variable]:
    return [variable for optimizer in tf_internals.optimizers_of(model) for variable in optimizer.variables]


def _differing(there: list[keras.Variable], here: list[keras.Variable]) -> Arrays:
    """Return the values of variables that their counterparts do not have."""
    if len(there) != len(here):  # an optimizer that is built for the first step
        return {}
    pairs = enumerate(zip(map(array_of, there), map(array_of, here), strict=True))
    return {number: a for number, (a, b) in pairs if not same_array(a, b)}
