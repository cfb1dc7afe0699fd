"""The tensors of a step that was made again for two runs, compared in the order of the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from tfdistr import tf_internals
from tfdistr.checkpoint.folder import Array
from tfdistr.checkpoint.trace import TracedStep
from tfdistr.replays.comparison import array_difference, of_numbers, relative
from tfdistr.replays.operations import tensors_of
from tfdistr.replays.replay import RunAgain, result_of
from tfdistr.replays.result import Replay


@dataclass(frozen=True)
class StepAgain:
    """A step that was made again for a comparison.

    Attributes:
        replay: The step, compiled as in the run.
        traced: Its numbers, as a trace has them.
        uncompiled: The outputs of the layers with their names, the losses and the gradients, uncompiled.
        random: The names of the layers that draw random numbers.
    """

    replay: Replay
    traced: TracedStep
    uncompiled: list[tuple[str, Array]]
    random: set[str]


@dataclass(frozen=True)
class Part:
    """A tensor of two steps: what it is, its name, by how much it differs, and its rows that differ."""

    what: str
    name: str
    by: float
    rows: list[int] | None = None
    layer: str | None = None


def step_again(run: RunAgain, step: int) -> StepAgain:
    """Make a step again, and keep its tensors."""
    made = run.remake(step)
    replay = result_of(run.kept, step, made)
    random = {layer.name for layer, _ in tf_internals.layers_with_generators(made.model)}
    return StepAgain(replay, made.steps[-1], tensors_of(made), random)


def parts(one: StepAgain, other: StepAgain) -> Iterator[Part]:
    """Yield the tensors of two steps in the order of the step."""
    a, b = one.replay, other.replay
    inputs = zip(keras.tree.flatten(a.inputs), keras.tree.flatten(b.inputs), strict=False)
    for number, (left, right) in enumerate(inputs):
        yield Part(
            "data",
            f"the rows of part {number} of the batch",
            array_difference(left, right),
            _rows(left, right),
        )
    yield from _weights("weights", "before", a.weights_before, b.weights_before)
    yield Part("learning rate", "the learning rate", of_numbers(one.traced.rates, other.traced.rates))
    for (layer, left), (_, right) in zip(one.uncompiled, other.uncompiled, strict=False):
        if layer:
            yield Part(
                "outputs", f"an output of the layer {layer}", array_difference(left, right), layer=layer
            )
    yield Part("gradients", "the loss", relative(a.loss, b.loss))
    for one_row, other_row in zip(reversed(a.gradients), reversed(b.gradients), strict=False):
        by = relative(one_row["norm"], other_row["norm"])
        yield Part("gradients", f"the gradient of {one_row['layer']}/{one_row['weight']}", by)
    yield from _weights("update", "after", a.weights_after, b.weights_after)


def _weights(what: str, when: str, one: dict[str, Any], other: dict[str, Any]) -> Iterator[Part]:
    for (name, left), right in zip(one.items(), other.values(), strict=False):
        yield Part(what, f"{name} {when} the step", array_difference(left, right))


def same_weights(one: Replay, other: Replay, tolerance: float) -> bool:
    """Return whether the weights before two steps are the same."""
    parts = _weights("weights", "before", one.weights_before, other.weights_before)
    return all(part.by <= tolerance for part in parts)


def same_uncompiled(one: StepAgain, other: StepAgain) -> bool:
    """Return whether two steps give the same bits if their operations run one by one."""
    pairs = zip(one.uncompiled, other.uncompiled, strict=False)
    same = all(array_difference(left, right) == 0.0 for (_, left), (_, right) in pairs)
    return same and len(one.uncompiled) == len(other.uncompiled)


def same_shapes(one: StepAgain, other: StepAgain) -> bool:
    """Return whether the models of two steps have weights of the same shapes."""
    shapes = [list(map(np.shape, each.replay.weights_before.values())) for each in (one, other)]
    return shapes[0] == shapes[1]


def most_changed(one: dict[str, Any], other: dict[str, Any]) -> Part:
    """Return the weight that differs most after a step."""
    return max(_weights("update", "after", one, other), key=lambda part: part.by)


def _rows(one: object, other: object) -> list[int] | None:
    """Return the rows that differ; None if the batches have other shapes."""
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape or not one.ndim:
        return None
    same = (one == other) | ((one != one) & (other != other))
    odd: list[int] = np.flatnonzero(~same.reshape(len(one), -1).all(axis=1)).tolist()
    return odd
