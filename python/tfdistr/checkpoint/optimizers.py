"""The optimizers of a training: the model's own, and others that are attributes of the model or its layers.

A generative adversarial network has two, for example. Keras makes the variables of an optimizer when it is
first used. A training that resumes makes them before, for the same variables of the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError

#: For each optimizer the numbers of the variables that it trains, among those of the model; None if the
#: optimizer was not used.
Trained = Sequence[Sequence[int] | None]


def trained_by(model: keras.Model) -> list[list[int] | None]:
    """The variables that each optimizer trains.

    Raises:
        ArgumentError: A variable is not one of the model's.
    """
    numbers = {id(variable): number for number, variable in enumerate(model.variables)}
    trained: list[list[int] | None] = []
    for optimizer in tf_internals.optimizers_of(model):
        variables = tf_internals.trained_variables(optimizer) if optimizer.built else []
        strange = [variable.path for variable in variables if id(variable) not in numbers]
        if strange:
            raise ArgumentError(
                "Optimizers must train variables of the model, or their state cannot be saved.",
                received=f"{', '.join(strange)}, of which {type(model).__name__}.variables knows nothing",
                fix="Make the layers with these variables attributes of the model.",
            )
        trained.append([numbers[id(variable)] for variable in variables] if optimizer.built else None)
    return trained


def build_optimizers(model: keras.Model, trained: Trained) -> None:
    """Make the variables of optimizers that were not used yet.

    Args:
        model: A built model.
        trained: The result of ``trained_by`` in the training that resumes.
    """
    variables = model.variables
    for optimizer, numbers in zip(tf_internals.optimizers_of(model), trained, strict=False):
        if numbers is None or optimizer.built or max(numbers, default=0) >= len(variables):
            continue  # what is of another model is found when the values are compared
        with model.distribute_strategy.scope():
            optimizer.build([variables[number] for number in numbers])
