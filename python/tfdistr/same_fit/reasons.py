"""The reasons for which fits on several numbers of workers differ, and what to do about each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Reason:
    """A reason, and what to do; in ``fix``, ``{most}`` stands for the highest number of workers."""

    text: str
    fix: str


ROUNDING = Reason(
    "the order of a sum changes its rounding, and the training enlarges this.",
    "Pass virtual_workers={most} for bitwise identical results, or a larger tolerance, or compare after "
    "fewer epochs.",
)
VIRTUAL = Reason(
    "an operation is not deterministic, or a function reads values that differ between workers, such as "
    "their index, the time or a file.",
    "Use only the rows, the weights and keras.random.",
)
REPEATED = Reason(
    "the model or its data depends on random numbers, or on something else, that `seed` does not determine.",
    "Draw with keras.random, or with a generator that has a fixed seed.",
)
CALLBACK = Reason(
    "a callback behaves differently on each number of workers.",
    "Compare without `callbacks` to find out whether one is the reason.",
)
OTHER_MODEL = Reason(
    "the function `model` builds another model on another number of workers.",
    "Build the same model on every number of workers.",
)
METRIC = Reason(
    "the variables of a metric are not sums over the rows: each worker has those of its rows, and they are "
    "added.",
    "Keep sums in the variables of the metric, and compute its value from them in result().",
)
PREDICTING = Reason(
    "the model draws random numbers also when it predicts, or it keeps something beside its weights.",
    "Draw with training=True only, and keep what a layer needs in its weights.",
)
UNKNOWN = Reason(
    "a part of the loss, or of train_step(), depends on which rows a worker has: a sum over the rows, a loss "
    "that compares them, or a gradient that the step clips.",
    "Compute means over the rows; gather the rows of all workers with tfdistr.gather() for a loss over the "
    "batch; let the optimizer clip (clipnorm, global_clipnorm).",
)
_DRAWS = "Pass virtual_workers={most}: the numbers then do not depend on the number of workers."


def drawing(layers: Sequence[str]) -> Reason:
    """Return the reason that layers draw random numbers."""
    return Reason(
        f"{_layers(layers, 'draws', 'draw')} random numbers for the rows of each worker, so that they depend "
        "on the number of workers.",
        _DRAWS,
    )


def tensorflow(operations: Sequence[str]) -> Reason:
    """Return the reason that operations draw with TensorFlow's global seed."""
    one = len(operations) == 1
    return Reason(
        f"the operation{'s' * (not one)} {', '.join(operations)} draw{'s' * one} with TensorFlow's global "
        "seed, so that all workers draw the same numbers for their rows.",
        "Draw with keras.random and a keras.random.SeedGenerator of the layer, and pass "
        "virtual_workers={most}.",
    )


def normalizing(layers: Sequence[str]) -> Reason:
    """Return the reason that layers normalize with the rows of one worker."""
    return Reason(
        f"{_layers(layers, 'normalizes', 'normalize')} with the rows of one worker only.",
        "Use BatchNormalization(synchronized=True), or pass virtual_workers={most}.",
    )


def added(layers: Sequence[str]) -> Reason:
    """Return the reason that layers add losses that are sums."""
    return Reason(
        f"{_layers(layers, 'adds', 'add')} a loss that is a sum over the rows. The losses of the workers are "
        "weighted as means over their rows.",
        "Add a mean over the rows in add_loss().",
    )


def summed() -> Reason:
    """Return the reason that the loss of the model is a sum."""
    return Reason(
        "the loss is a sum over the rows. The losses of the workers are weighted as means over their rows.",
        'Return the mean over the rows, or one loss for each row; or use a Keras loss with reduction="sum".',
    )


def _layers(names: Sequence[str], one: str, several: str) -> str:
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"the layer {quoted} {one}" if len(names) == 1 else f"the layers {quoted} {several}"
