"""The likely reason of a difference between fits: what the fits know of it, or the traces of two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfdistr.checkpoint.trace import TracedStep
from tfdistr.errors import TfdistrError
from tfdistr.replays.comparison import ROUNDING, difference, first_difference, relative
from tfdistr.same_fit import reasons
from tfdistr.same_fit.difference import Difference, Pair
from tfdistr.same_fit.reasons import Reason, reason_of
from tfdistr.utils.describe import number_of
from tfdistr.utils.metric_values import columns_of

#: The relative difference that another number of workers may make in a step with 16 bits.
_ROUNDING_16 = 0.05


@dataclass(frozen=True)
class Run:
    """A training that was made once more: its history, and its steps."""

    history: Mapping[str, Sequence[Any]]
    steps: Mapping[int, TracedStep]


@dataclass(frozen=True)
class Explanation:
    """Why fits differ.

    Attributes:
        reasons: The reasons.
        sure: Whether they are more than likely.
        known: Other sentences about the difference.
    """

    reasons: list[Reason]
    sure: bool = False
    known: tuple[str, ...] = ()

    def message(self, found: Difference, most: int) -> str:
        """Return the message: the difference, what is known of it, the reasons, and what to do."""
        lines = [str(found), *(f"Known: {known}" for known in self.known)]
        lines += [f"{'Reason' if self.sure else 'Likely reason'}: {reason.text}" for reason in self.reasons]
        fixes = dict.fromkeys(reason.fix.format(most=most) for reason in self.reasons)
        return "\n".join([*lines, *(f"Fix: {fix}" for fix in fixes)])


def explain(
    found: Difference,
    history: Mapping[str, Sequence[Any]],
    differences: Iterable[str],
    run: Callable[[int], Run],
    *,
    virtual: bool = False,
    sixteen_bits: bool = False,
    callbacks: bool = False,
) -> Explanation:
    """Find the likely reason of a difference, from what the fits say and from trainings by ``run``."""
    model = [pair for pair in found.pairs if pair.group in ("weight", "optimizer")]
    if any(not pair.same_shape for pair in model):
        return Explanation([reasons.OTHER_MODEL], sure=True)
    told = {each: reason_of(each) for each in differences}
    because = [reason for reason in told.values() if reason is not None]
    known = tuple(each for each, reason in told.items() if reason is None)  # what could not be checked
    enlarged = [reasons.VIRTUAL if virtual else reasons.ROUNDING]
    if not because and (beside := _beside_the_model(found, model, enlarged)):
        return beside
    allowed = 0.0 if virtual else _ROUNDING_16 if sixteen_bits else ROUNDING
    try:
        one = run(found.workers[0])
        if other := _first_other(history, one.history, allowed):
            what = f"two trainings on {number_of(found.workers[0], 'worker')} also differ: {other}."
            return Explanation([reasons.REPEATED], sure=True, known=(what,))
        if not because:
            enlarged += [reasons.CALLBACK] * callbacks
            return _by_steps(one.steps, run(found.workers[1]).steps, allowed, enlarged, known)
    except TfdistrError:  # such a model has no trace
        because = because or [reasons.VIRTUAL if virtual else reasons.UNKNOWN]
        return Explanation(because, known=known)
    return Explanation(because, sure=not known, known=known)


def _first_other(
    one: Mapping[str, Sequence[Any]], again: Mapping[str, Sequence[Any]], allowed: float
) -> str | None:
    """Return the first value of a history that is another one in a training of the same."""
    repeated = columns_of(again)
    for name, column in columns_of(one).items():
        for value, other in zip(column, repeated.get(name, ()), strict=False):
            if relative(value, other) > allowed:
                return f'the metric "{name}" is {value:.9g} and {other:.9g}'
    return None


def _beside_the_model(found: Difference, model: Sequence[Pair], enlarged: list[Reason]) -> Explanation | None:
    """Return the reasons if only metrics or outputs differ; None if the training itself does."""
    history = [pair.name for pair in found.differing if pair.group == "history"]
    if any(pair.differs for pair in model) or any("loss" in name for name in history):
        return None
    beside = [reasons.METRIC if history else reasons.PREDICTING]
    apart = max((pair.difference for pair in model), default=0.0)
    if apart == 0:
        return Explanation(beside)
    known = f"the weights and the optimizer differ by {apart:.2g} only."
    return Explanation([*enlarged, *beside] if history else enlarged, known=(known,))


def _by_steps(
    one: Mapping[int, TracedStep],
    two: Mapping[int, TracedStep],
    allowed: float,
    enlarged: list[Reason],
    known: tuple[str, ...],
) -> Explanation:
    """Return the reasons that the first step shows in which two runs differ."""
    step = first_difference(one, two, allowed)
    if step is None:
        apart = max((difference(one[number], two[number]) for number in set(one) & set(two)), default=0.0)
        but = f", but for rounding ({apart:.2g} of their size)" if apart else ""
        what = f"all {len(one)} steps have the same losses and gradient norms{but}."
        return Explanation(enlarged, known=(*known, what))
    what = f"step {step} is the first that differs: {_numbers(one[step])}, and {_numbers(two[step])}."
    known = (*known, what)
    if one[step].rates != two[step].rates:
        return Explanation([reasons.CALLBACK], sure=True, known=known)
    if step > min(one) or reasons.VIRTUAL in enlarged:
        return Explanation(enlarged, known=known)
    return Explanation([reasons.UNKNOWN, reasons.VIRTUAL], known=known)


def _numbers(step: TracedStep) -> str:
    given = {"loss": step.loss, "gradient norm": step.norm, "learning rate": step.rate}
    return ", ".join(f"{name} {value:.6g}" for name, value in given.items() if value is not None)
