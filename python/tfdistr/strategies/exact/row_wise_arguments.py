"""The arguments with which a layer, a loss or a metric of Keras may mix the rows of a batch.

These rules and row_wise.json are proved together: a class is on that list if it works row by row with all
arguments that are not refused here. So a rule that is missing costs a class its place on the list.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import keras


class Use(NamedTuple):
    """The use of a part.

    Attributes:
        ranks: The ranks of its inputs; none if they are not known.
        is_proved: Returns whether a function or a class is proved for these ranks.
    """

    ranks: Collection[int]
    is_proved: Callable[[Any], bool]


def refused_argument(part: object, use: Use, more: Mapping[str, object]) -> str | None:
    """Return an argument of a part that may mix rows, such as "axis=0"; None if there is none."""
    attributes = {**vars(part), **more}
    cls: Any = type(part)
    for name in (*_names(cls), *more):
        value = attributes.get(name, attributes.get(f"_{name}", _MISSING))
        rule = None if value is _MISSING else _RULES.get(name)
        if rule is not None and (name in _NEVER_NONE if value is None else rule(value, use)):
            return f"{name}={described_argument(value)}"
    return None


@functools.cache
def _names(cls: Any) -> tuple[str, ...]:
    """Return the arguments of a class that have a rule. An attribute of this name may be something else."""
    return tuple(
        name for name in _RULES if name in _OF_ALL or name in inspect.signature(cls.__init__).parameters
    )


def described_argument(value: object) -> str:
    """Return the value of an argument as a message shows it."""
    if isinstance(value, list | tuple) and len(value) == 1:
        return described_argument(value[0])
    if value is None or isinstance(value, bool | int | float | str | list | tuple):
        return str(value)
    return str(getattr(value, "__name__", type(value).__name__))


def _has_batch_axis(axes: object, use: Use) -> bool:
    for axis in axes if isinstance(axes, list | tuple) else (axes,):
        if isinstance(axis, list | tuple):
            return _has_batch_axis(axis, use)
        if not isinstance(axis, int) or axis == 0 or -axis in use.ranks:
            return True
        if axis < -1 and not use.ranks:
            return True
    return False


def _is_strange_function(function: object, use: Use) -> bool:
    return not (isinstance(function, keras.Layer) or use.is_proved(function))  # layers are parts of their own


def _is_strange_object(value: object, use: Use) -> bool:
    return not use.is_proved(type(value))


def _moves_rows(equation: str, use: Use) -> bool:
    inputs, _, output = equation.replace("...", ".").replace(" ", "").partition("->")
    letter = inputs[:1]
    return output[:1] != letter or letter in inputs[1:] or letter in output[1:]


def _shares_noise(shape: Any, use: Use) -> bool:
    return shape[0] is not None or not set(use.ranks) <= {len(shape)}


# "none" is left out: one number for each row is no loss.
_REDUCTIONS = ("sum_over_batch_size", "sum", "mean", "mean_with_sample_weight")
# None stands for all axes, for no reduction, and for a text that is one word.
_NEVER_NONE = ("axis", "reduction", "split")
# Arguments that all layers pass on to their base class.
_OF_ALL = ("activity_regularizer", "dtype_policy")
_MISSING = object()
_RULES: dict[str, Callable[[Any, Use], bool]] = {
    "axis": _has_batch_axis,
    "axes": _has_batch_axis,
    "attention_axes": _has_batch_axis,
    "activation": _is_strange_function,
    "recurrent_activation": _is_strange_function,
    "activity_regularizer": _is_strange_object,
    "equation": _moves_rows,
    "reduction": lambda reduction, use: reduction not in _REDUCTIONS,
    # Of scalar rows they make one vector.
    "output_mode": lambda mode, use: mode != "int" and (not use.ranks or min(use.ranks) < 2),
    "noise_shape": _shares_noise,
    "split": lambda split, use: not isinstance(split, str),
    "standardize": lambda standardize, use: callable(standardize),
    # A row would get the state of the row that was in its place in the last batch.
    "stateful": lambda stateful, use: bool(stateful),
    "dtype_policy": lambda policy, use: getattr(policy, "quantization_mode", None) is not None,
}
