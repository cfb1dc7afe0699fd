"""The cause of a step that is not finite: its first tensor that is no number, and the rows behind it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.checkpoint.trace import Trace
from tfdistr.checkpoint.variables import all_finite
from tfdistr.replays.operations import OddOperation, Watch, is_finite_tensor, make_step, odd_operations
from tfdistr.replays.rerun import Rerun
from tfdistr.replays.tables import chosen, cut
from tfdistr.strategies.exact.loss_weighting import count_examples
from tfdistr.strategies.exact.row_wise import unproved_parts

_SHOWN = 5


@dataclass(frozen=True)
class Cause:
    """The first tensor of a step that is not finite.

    Attributes:
        where: "weights" (before the step), "inputs", "forward", "backward", "update" (by the optimizer), or
            "unknown" if the step is finite when its operations run one by one.
        layer: The name of the layer, of the weight or of the input; None outside of layers, as in a loss.
        operation: The TensorFlow operation that computed the tensor from finite ones, if one did.
        rows: The rows of the batch that cause it, from 0; None if the whole batch does.
        lines: The cause in words.
    """

    where: str
    layer: str | None = None
    operation: str | None = None
    rows: list[int] | None = None
    lines: list[str] = field(default_factory=list)


def explain(trace: Trace, made: Rerun) -> Cause:
    """Find the cause of a step that is not finite. The model gets the state from before the step."""
    found = next((Cause("weights", name) for name in made.odd_weights(made.before)), None)
    if found is None:
        rows = _guilty_rows(made)
        found = _odd_inputs(made, rows) or _first_operation(made, rows)
    made.rewind()
    lines = [
        _words(found, made),
        *found.lines,
        *_of_rows(made, found),
        *_of_steps(trace, made.steps[-1].step),
    ]
    return replace(found, lines=lines)


def _odd_inputs(made: Rerun, guilty: list[int] | None) -> Cause | None:
    """Return an input with values that are not finite, if they are in rows that cause it."""
    x, y, weights = keras.utils.unpack_x_y_sample_weight(made.batch)
    for name, part in (("x", x), ("y", y), ("sample_weight", weights)):
        for path, tensor in keras.tree.flatten_with_path(part):
            if isinstance(tensor, tf.Tensor) and not is_finite_tensor(tensor):
                axes = tuple(range(1, tensor.shape.rank))
                odd = np.flatnonzero(~np.isfinite(np.asarray(tensor, np.float64)).all(axis=axes)).tolist()
                rows = odd if guilty is None else [row for row in odd if row in guilty]
                if rows:
                    return Cause("inputs", "/".join(map(str, (name, *path))), rows=rows)
    return None


def _first_operation(made: Rerun, guilty: list[int] | None) -> Cause:
    """Return the first operation that is odder than without the guilty rows, or than its inputs."""
    found = odd_operations(made, made.batch)
    rest = [row for row in range(int(count_examples(made.batch))) if row not in guilty] if guilty else []
    known = _by_place(odd_operations(made, chosen(made.batch, rest))) if rest else {}
    by_rows = [one for place, one in _by_place(found).items() if rest and _odder(one, known.get(place))]
    first = next(iter([*by_rows, *(one for one in found if one.odd > one.before)]), None)
    if first is None:
        return Cause("unknown", next(iter(made.odd_weights(made.after)), None))
    rows = guilty if first.where in ("forward", "backward") else None
    return Cause(first.where, first.layer, first.operation, rows, [first.reason] if first.reason else [])


def _by_place(found: list[OddOperation]) -> dict[Any, OddOperation]:
    """Return operations by their phase, layer and type, and their number among those that are alike."""
    count, places = Counter[Any](), {}
    for one in found:
        alike = (one.where, one.layer, one.operation)
        count[alike] += 1
        places[(*alike, count[alike])] = one
    return places


def _odder(one: OddOperation, other: OddOperation | None) -> bool:
    return other is None or one.odd > other.odd


def _guilty_rows(made: Rerun) -> list[int] | None:
    """Return the rows whose loss or gradients are not finite alone, by halving; None for the whole batch."""
    count = int(count_examples(made.batch))

    def search(first: int, end: int) -> Iterator[int]:
        if _makes_finite_step(made, cut(made.batch, first, end)):
            return
        if end - first == 1:
            yield first
            return
        middle = (first + end) // 2
        yield from search(first, middle)
        yield from search(middle, end)

    found = list(search(0, count))
    normal = keras.layers.BatchNormalization
    mixes = any(isinstance(layer, normal) for layer in tf_internals.all_layers(made.model))
    if mixes or unproved_parts(made.model):
        found = _guilty_among_others(made, found, count)
    return found or None


def _guilty_among_others(made: Rerun, found: list[int], count: int) -> list[int]:
    """Return the rows without which the batch is finite, and with each of which it is not.

    Where rows are used together, a row alone may be not finite though it is none of the cause.
    """

    def is_finite(rows: list[int]) -> bool:
        return _makes_finite_step(made, chosen(made.batch, rows))

    rest = [row for row in range(count) if row not in found]
    if not rest or not is_finite(rest):
        return []
    return [row for row in found if not is_finite(sorted([*rest, row]))]


def _makes_finite_step(made: Rerun, batch: object) -> bool:
    try:
        return all(map(is_finite_tensor, make_step(made, batch, Watch(), apply=False)))
    except tf.errors.InvalidArgumentError:
        return False


def _words(found: Cause, made: Rerun) -> str:
    if found.where == "weights":
        return f"The weight {found.layer} was not finite before the step."
    if found.where == "inputs":
        return f"The input {found.layer} has values that are not finite."
    if found.where == "unknown" and made.steps[-1].is_finite:
        return (
            f"The step is finite, but the weight {found.layer} is not after it: a callback may have set it."
        )
    if found.where == "unknown" and all(map(all_finite, made.gradients.values())):
        return "The gradients are finite, but so large that the sum of their squares is not."
    if found.where == "unknown":
        return "All tensors are finite if the operations run one by one: the compiled step differs."
    kind = "model" if found.layer == made.model.name else "layer"
    place = "the loss" if found.layer is None else f"the {kind} {found.layer!r}"
    where = {"forward": "in the forward pass", "backward": "in the backward pass", "update": "in the update"}
    if found.where == "update":
        place = "the optimizer"
    return f"The first tensor that is not finite: {found.operation} of {place}, {where[found.where]}."


def _of_rows(made: Rerun, found: Cause) -> list[str]:
    if found.where in ("weights", "unknown", "update"):
        return []
    rows = found.rows
    if rows is None:
        return ["No single rows can be named: the whole batch causes it."]
    if 1 < len(rows) == int(count_examples(made.batch)):
        return ["Each row of the batch causes it alone."]
    indices = None if made.indices is None else [made.indices[row] for row in rows]
    named = of_rows(rows, indices, [made.places[row] for row in rows] if made.places else [])
    return [f"Caused by row{'s' * (len(rows) > 1)} {named}."]


def of_rows(
    rows: Sequence[int], indices: Sequence[int] | None, places: Sequence[tuple[str, int | None]] = ()
) -> str:
    """Return rows of a batch in words, with their indices in the data and their places in files."""
    index = "" if indices is None else f", {_listed(indices)} of the data"
    files = [file if row is None else f"row {row} of {file}" for file, row in places]
    index += f", {_listed(files)}" if files else ""
    return f"{_listed(rows)} of the batch{index} (counted from 0)"


def _listed(numbers: Sequence[object]) -> str:
    return ", ".join(map(str, numbers[:_SHOWN])) + (", ..." if len(numbers) > _SHOWN else "")


def _of_steps(trace: Trace, step: int) -> list[str]:
    before = trace.before(step)
    norms = ", ".join("none" if made.norm is None else f"{made.norm:.3g}" for made in before)
    rates = {made.rate for made in before if made.rate is not None}
    if not before:
        return ["It is the first step of the run."]
    between = (
        " to ".join(f"{rate:.3g}" for rate in sorted({min(rates), max(rates)})) if rates else "not known"
    )
    return [f"Gradient norms of the steps before: {norms}. Learning rate: {between}."]
