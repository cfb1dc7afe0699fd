"""The reasons for which fits on several numbers of workers differ, and what to do about each."""

from __future__ import annotations

from dataclasses import dataclass

from tfdistr.strategies.exact.batch_check import SUM
from tfdistr.strategies.noted_layers import DRAWS, NORMALIZES, SAME


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

_SAID = "The result on several workers is not that of one worker: "
#: What to do about the differences that the result of a fit tells, by a part of their sentences.
_FIXES = {
    DRAWS: "Pass virtual_workers={most}: the numbers then do not depend on the number of workers.",
    NORMALIZES: "Use BatchNormalization(synchronized=True), or pass virtual_workers={most}.",
    SAME: "Draw with keras.random and a keras.random.SeedGenerator of the layer, and pass "
    "virtual_workers={most}.",
    SUM: "Return the mean over the rows, or one loss for each row; in add_loss(), add the mean.",
    _SAID: "Gather the rows of all workers there with tfdistr.gather(); in train_step, "
    "take gradients with tape.gradient(), or let the optimizer clip; or pass virtual_workers={most}.",
}


def reason_of(difference: str) -> Reason | None:
    """Return the reason in a sentence of ``fit.params["differences"]``; None if it is no reason."""
    fixes = (fix for part, fix in _FIXES.items() if part in difference)
    fix = next(fixes, None)
    return None if fix is None else Reason(f"{difference.removeprefix(_SAID)}.", fix)
