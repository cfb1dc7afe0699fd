"""Tries Keras's layers, losses, metrics and functions row by row, and records those that pass.

Usage: keras_rows.py [--record]

It prints what is not as recorded for this version of Keras. With --record it goes into row_wise.json.
Another version of Keras, first on PYTHONPATH, is tried in place of the installed one.
"""

from __future__ import annotations

import inspect
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from keras_layer_rows import AB, BA, A, B, LayerOnRows, are_joined, as_array
from keras_samples import INPUTS, LABELS, Arguments, Arrays, arguments_of

from tfdistr import tf_internals
from tfdistr.strategies.exact.row_wise import MIXED, RECORD
from tfdistr.strategies.exact.row_wise_arguments import Use, refused_argument

MINOR = ".".join(keras.__version__.split(".")[:2])


#: The parts that are proved so far, each with the ranks of its inputs.
Known = dict[Any, set[int]]


class DoesNotWork(Exception):
    """A part cannot be made with these arguments, or not take this input."""


def proved_parts(*, with_all_arguments: bool = True) -> dict[str, str]:
    """Return the names of the parts that work row by row, each with the ranks of its inputs.

    Args:
        with_all_arguments: Whether other arguments than the usual ones are tried, which takes a minute.
    """
    proved: dict[str, str] = {}
    known: Known = {}
    kinds = [
        (keras.activations, inspect.isfunction, _function_works, INPUTS),
        (keras.regularizers, inspect.isclass, _regularizer_works, INPUTS),
        (keras.losses, inspect.isfunction, _loss_function_works, LABELS),
        (keras.metrics, inspect.isfunction, _loss_function_works, LABELS),
        (keras.losses, inspect.isclass, _loss_works, LABELS),
        (keras.metrics, inspect.isclass, _metric_works, LABELS),
        (keras.layers, inspect.isclass, _layer_works, INPUTS),
    ]
    for space, is_part, works, inputs in kinds:
        members = reversed(inspect.getmembers(space, is_part))
        for part, name in {part: name for name, part in members}.items():  # without aliases
            ranks = {
                rank
                for rank, of_rank in _by_rank(part, inputs).items()
                if _passes(part, works, of_rank, known, with_all_arguments)
            }
            if ranks:
                known[part] = ranks
                proved[f"{space.__name__.rpartition('.')[2]}.{name}"] = " ".join(map(str, sorted(ranks)))
    return proved


def _by_rank(part: Any, inputs: dict[str, Arrays]) -> dict[int, list[Arrays]]:
    by_rank: dict[int, list[Arrays]] = {}
    for arrays in inputs.values():
        ranks = [array.ndim for array in arrays]
        if inputs is INPUTS:
            rank = ranks[0] if min(ranks) == max(ranks) else MIXED
            fits = rank == 4 or not _is_for_images(part)  # they take a batch of rank 3 as one image
        else:
            rank = ranks[-1]
            fits = ranks[0] == rank or part.__name__ not in _ONE_HOT
        if fits:
            by_rank.setdefault(rank, []).append(arrays)
    return by_rank


# Their labels have the shape of the predictions.
_ONE_HOT = ("categorical_accuracy", "CategoricalAccuracy", "OneHotIoU", "OneHotMeanIoU")


def _is_for_images(part: Any) -> bool:
    return "BaseImagePreprocessingLayer" in [cls.__name__ for cls in getattr(part, "__mro__", ())]


class Trial(NamedTuple):
    """A trial of a part.

    Attributes:
        part: The class or the function.
        arguments: The arguments of the class.
        arrays: The inputs.
        known: The parts that are proved so far.
        first: Whether these inputs are tried for the first time, and so in all ways.
    """

    part: Any
    arguments: dict[str, Any]
    arrays: Arrays
    known: Known
    first: bool = True

    def made(self) -> Any:
        """Return an object of the class."""
        return _attempt(lambda: self.part(**self.arguments))


#: Whether a part works by row in a trial; None if an argument is refused.
Works = Callable[[Trial], bool | None]


def _passes(part: Any, works: Works, inputs: list[Arrays], known: Known, with_all_arguments: bool) -> bool:
    """Return whether a part works by row for all inputs that it takes, with all arguments that it takes."""
    taken: list[Arrays] = []
    for arguments in arguments_of(part) if inspect.isclass(part) else [Arguments({}, are_usual=True)]:
        first = not taken
        if not (first or with_all_arguments):
            break
        if first and not arguments.are_usual:
            return False
        for arrays in inputs if first else taken[:1]:
            # A layer of one input would stack two of them.
            if first and len(arrays) > 1 and any(len(other) == 1 for other in taken):
                continue
            try:
                found = works(Trial(part, arguments.values, arrays, known, first))
            except DoesNotWork:
                continue
            if found is False:
                return False
            if first and found:
                taken.append(arrays)
    return bool(taken)


def _attempt(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise DoesNotWork from error


def _function_works(trial: Trial) -> bool:
    if len(trial.arrays) > 1:
        raise DoesNotWork
    return _agrees(lambda x: [trial.part(x)], trial.arrays)


def _regularizer_works(trial: Trial) -> bool:
    if len(trial.arrays) > 1:
        raise DoesNotWork
    layer = keras.layers.Activation("linear", activity_regularizer=trial.made())
    return _attempt(lambda: LayerOnRows(layer, trial.arrays)).adds_up()


def _loss_function_works(trial: Trial) -> bool:
    return _agrees(lambda y, p: [trial.part(y, p)], trial.arrays)


def _agrees(call: Callable[..., list[Any]], arrays: Arrays) -> bool:
    def run(rows: Sequence[int]) -> list[np.ndarray]:
        return [as_array(output) for output in call(*(tf.constant(array[rows]) for array in arrays))]

    ab = _attempt(lambda: run(AB))
    try:
        a, b, ba = run(A), run(B), run(BA)
    except Exception:  # of some numbers of rows only
        return False
    return are_joined(ab, a, b) and are_joined(ba, b, a)


def _loss_works(trial: Trial) -> bool | None:
    """Return whether a loss has a value for each row, and its reductions add up."""
    loss = trial.made()
    if _refused(loss, {trial.arrays[-1].ndim}, trial.known):
        return None
    if not _agrees(lambda y, p: [loss.call(y, p)], trial.arrays):
        return False
    reductions = ("sum", "sum_over_batch_size", "mean", "mean_with_sample_weight", "none")
    return not trial.first or all(_reduction_adds_up(trial, kind) for kind in reductions)


def _reduction_adds_up(trial: Trial, reduction: str) -> bool:
    loss, arrays = trial.part(**{**trial.arguments, "reduction": reduction}), trial.arrays
    if _refused(loss, {arrays[-1].ndim}, trial.known):
        return True
    weights = np.array([0.5, 2.0, 1.0], "float32")[:, *[None] * (loss.call(*arrays).ndim - 1)]

    def total(rows: list[int], weighted: bool) -> float:
        y, p = (tf.constant(array[rows]) for array in arrays)
        value = float(loss(y, p, weights[rows] if weighted else None))
        if loss.reduction == "sum":
            return value
        # Workers weigh their losses by what is not masked, as Keras does for a batch.
        values = loss.call(y, p)
        counted = np.array(getattr(values, "_keras_mask", np.ones(values.shape)), "float32")
        by_weight = weighted and loss.reduction == "mean_with_sample_weight"
        return value * float(np.sum(counted * weights[rows] if by_weight else counted))

    adds_up = np.isclose(total(AB, False), total(A, False) + total(B, False), rtol=1e-4)
    try:
        together = total(AB, True)
    except Exception:  # it takes no such weights
        return bool(adds_up)
    return bool(adds_up and np.isclose(together, total(A, True) + total(B, True), rtol=1e-4))


def _refused(part: Any, ranks: set[int], known: Known) -> bool:
    def is_proved(other: Any) -> bool:
        return other in known and known[other] >= ranks

    _, more = tf_internals.wrapped_function(part)
    return refused_argument(part, Use(ranks, is_proved), more) is not None


def _metric_works(trial: Trial) -> bool | None:
    """Return whether the state of a metric is a sum over rows, which workers add."""
    metric, arrays = trial.made(), trial.arrays
    weights = np.array([0.5, 2.0, 1.0], "float32")

    def state(rows: list[int], weighted: bool) -> list[np.ndarray]:
        metric.reset_state()
        y, p = (tf.constant(array[rows]) for array in arrays)
        metric.update_state(y, p, *([weights[rows]] if weighted else []))
        return [np.array(variable) for variable in metric.variables]

    _attempt(lambda: state(AB, False))
    if _refused(metric, {arrays[-1].ndim}, trial.known):
        return None
    if not metric.variables or any(variable.aggregation != "sum" for variable in metric.variables):
        return False
    for weighted in (False, True):
        try:
            together = state(AB, weighted)
        except Exception:  # it takes no weights
            continue
        try:
            apart = [a + b for a, b in zip(state(A, weighted), state(B, weighted), strict=True)]
        except Exception:
            return False
        pairs = zip(together, apart, strict=True)
        if not all(np.allclose(x, y, rtol=1e-4, equal_nan=True) for x, y in pairs):
            return False
    return True


_CELLS = ("LSTMCell", "GRUCell", "SimpleRNNCell", "StackedRNNCells")


def _layer_works(trial: Trial) -> bool | None:
    layer = trial.made()
    if trial.part.__name__ in _CELLS:
        layer = keras.layers.RNN(layer)
    on_rows = _attempt(lambda: LayerOnRows(layer, trial.arrays))
    parts = [(layer, {array.ndim for array in trial.arrays})]
    parts += [(inner, set()) for inner in tf_internals.all_layers(layer)]
    if any(_refused(part, ranks, trial.known) for part, ranks in parts):
        return None
    return on_rows.adds_up(both_orders=trial.first)


def main() -> int:
    """Compare what passes with the record, and record it if that is asked for."""
    warnings.simplefilter("ignore")
    found = proved_parts()
    wrong = differences(found)
    print(f"Keras {keras.__version__}: {len(found)} parts proved.")
    print("Not as recorded:", ", ".join(wrong) or "none")
    if "--record" in sys.argv:
        write_record(found)
        return 0
    return int(bool(wrong))


def recorded_parts() -> dict[str, str]:
    """Return what the record has for this version of Keras, in the form of ``proved_parts()``."""
    return {
        name: ranks
        for name, by_ranks in json.loads(RECORD.read_text()).items()
        for ranks, versions in by_ranks.items()
        if MINOR in versions
    }


def differences(found: dict[str, str]) -> list[str]:
    """Return the parts whose ranks are not those on the record for this version of Keras."""
    recorded = recorded_parts()
    names = sorted({*found, *recorded})
    return [
        f"{name} (ranks {recorded.get(name, 'none')}, now {found.get(name, 'none')})"
        for name in names
        if recorded.get(name) != found.get(name)
    ]


def write_record(found: dict[str, str]) -> None:
    """Record these parts, and no others, for this version of Keras."""
    record = json.loads(RECORD.read_text())
    for by_ranks in record.values():
        for versions in by_ranks.values():
            versions[:] = [version for version in versions if version != MINOR]
    for name, ranks in found.items():
        versions = record.setdefault(name, {}).setdefault(ranks, [])
        versions[:] = sorted([*versions, MINOR], key=lambda version: int(version.split(".")[1]))
    used = {
        name: {ranks: versions for ranks, versions in sorted(by_ranks.items()) if versions}
        for name, by_ranks in sorted(record.items())
    }
    lines = [f"  {json.dumps(name)}: {json.dumps(by_ranks)}" for name, by_ranks in used.items() if by_ranks]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    sys.exit(main())
