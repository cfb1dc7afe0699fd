"""The study of a difference between fits: the parts of the model, and experiments of one step."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr.same_fit import reasons
from tfdistr.same_fit.difference import Difference, count_workers
from tfdistr.same_fit.probe import ADDED, DRAWS, ROWS, SUM
from tfdistr.same_fit.reasons import Reason

if TYPE_CHECKING:
    from tfdistr.jobs.result import FitResult
    from tfdistr.same_fit.parts import Parts

#: The largest difference of gradients, relative to their largest value, that is rounding: a sum over the rows
#: in 32 bits, or in 16 bits.
_ROUNDING, _ROUNDING_16 = 1e-4, 0.05
#: Variables of the optimizer of a probe before the momenta: its step and its learning rate.
_BEFORE = 2

Gradients = Sequence[np.ndarray[Any, Any]]


@dataclass
class Experiment:
    """A training of one step with the model of a ``Probe``.

    Attributes:
        virtual_workers: Number of virtual workers, if it is not that of the fits.
        gradients: The gradients of the step; None before ``done()``, and if the training failed.
    """

    workers: int
    without: tuple[str, ...] = ()
    virtual_workers: int | None = None
    gradients: Gradients | None = None

    def done(self, fit: FitResult) -> None:
        """Read the gradients from the result of the training."""
        momenta = fit._trained.state().optimizer[_BEFORE:]
        self.gradients = [np.asarray(momentum, np.float64) for momentum in momenta] or None


class Study:
    """The search for the likely reason of a difference.

    Args:
        parts: What the model does in a training step.
        virtual_workers: Number of virtual workers of the fits; None without them.
        sixteen_bits: Whether gradients are sent with 16 bits.
        callbacks: Whether the fits had callbacks, which experiments do not have.
    """

    def __init__(
        self,
        found: Difference,
        parts: Parts,
        *,
        most: int,
        virtual_workers: int | None = None,
        sixteen_bits: bool = False,
        callbacks: bool = False,
    ) -> None:
        self._difference = found
        self._parts = parts
        self._most = most
        self._virtual = virtual_workers is not None
        self._callbacks = callbacks
        half = parts.sixteen_bits or sixteen_bits
        self._rounding = 0.0 if self._virtual else _ROUNDING_16 if half else _ROUNDING
        self._observations: list[str] = []
        self._reasons: list[Reason] = []
        self._sure = False

    def message(self) -> str:
        """Return the message: the difference, the observations, the reason and the fix."""
        lines = [str(self._difference), *(f"Known: {known}" for known in self._observations)]
        lines += [f"{'Reason' if self._sure else 'Likely reason'}: {reason.text}" for reason in self._reasons]
        fixes = dict.fromkeys(reason.fix.format(most=self._most) for reason in self._reasons)
        return "\n".join([*lines, *(f"Fix: {fix}" for fix in fixes)])

    def experiments(self) -> Iterator[Experiment]:
        """Yield the experiments, each chosen from the results so far; the caller runs them.

        After the last one, ``message()`` has the reason.
        """
        if because := self._without_experiments():
            self._conclude(because, sure=reasons.OTHER_MODEL in because)
            return
        first, second = self._difference.workers
        one = yield from _run(Experiment(first))
        two = yield from _run(Experiment(second))
        if one is None or two is None:
            self._conclude(self._all_parts() or [reasons.UNKNOWN])
            return
        apart = distance(one, two)
        if apart <= self._rounding:
            self._know(f"the gradients of the first step are the same {self._but(apart)}.")
            likely = [reasons.VIRTUAL if self._virtual else reasons.ROUNDING]
            self._conclude([*likely, reasons.CALLBACK] if self._callbacks else likely)
            return
        self._know(f"the gradients of the first step differ by {apart:.2g} of their largest value.")
        again = yield from _run(Experiment(first))
        if again is not None and (repeated := distance(one, again)) > self._rounding:
            self._know(f"two trainings of it on {count_workers(first)} also differ, by {repeated:.2g}.")
            self._conclude([reasons.REPEATED], sure=True)
        elif self._virtual:
            self._conclude([reasons.VIRTUAL])
        else:
            yield from self._without_parts(one, two)

    def _without_experiments(self) -> list[Reason]:
        """Return the reasons that the difference itself shows."""
        differing = self._difference.differing
        model = [pair for pair in self._difference.pairs if pair.group in ("weight", "optimizer")]
        if any(not pair.same_shape for pair in model):
            return [reasons.OTHER_MODEL]
        history = [pair.name for pair in differing if pair.group == "history"]
        if any(pair.differs for pair in model) or any("loss" in name for name in history):
            return []
        beside = reasons.METRIC if history else reasons.PREDICTING
        apart = max((pair.difference for pair in model), default=0.0)
        if apart == 0:
            return [beside]
        self._know(f"the weights and the optimizer differ by {apart:.2g} only.")
        enlarged = reasons.VIRTUAL if self._virtual else reasons.ROUNDING
        return [enlarged, beside] if history else [enlarged]

    def _without_parts(self, one: Gradients, two: Gradients) -> Iterator[Experiment]:
        """Remove one part after the other, until the gradients are the same."""
        parts = self._parts
        without: tuple[str, ...] = ()
        because: list[Reason] = []
        for part, names, reason in (
            (DRAWS, parts.silent, reasons.drawing),
            (ROWS, parts.normalizing, reasons.normalizing),
        ):
            if not names:
                continue
            because.append(reason(names))
            without = (*without, part)
            if (yield from self._same(without, because)):
                return
        if parts.tensorflow:
            self._conclude([*because, reasons.tensorflow(parts.tensorflow)])
        elif parts.drawing:
            because.append(reasons.drawing(parts.drawing))
            if not (yield from self._same(without, because, self._most)):
                self._conclude(because)
        elif parts.adding and (
            yield from self._same((*without, ADDED), [*because, reasons.added(parts.adding)])
        ):
            return
        else:
            yield from self._sum(without, because, one, two)

    def _sum(
        self, without: tuple[str, ...], because: list[Reason], one: Gradients, two: Gradients
    ) -> Iterator[Experiment]:
        """Find out whether the loss of the model is a sum over the rows."""
        first, second = self._difference.workers
        if not without and distance([part * first / second for part in one], two) <= self._rounding:
            base = count_workers(first)
            self._know(f"those on {count_workers(second)} are {first}/{second} of those on {base}.")
            self._conclude([reasons.summed()], sure=True)
        elif not (yield from self._same((*without, SUM), [*because, reasons.summed()])):
            self._conclude([*because, *([] if because else [reasons.UNKNOWN])])

    def _same(
        self, without: tuple[str, ...], because: list[Reason], virtual_workers: int | None = None
    ) -> Generator[Experiment, None, bool]:
        """Return whether the gradients are the same without some parts. If so, the reasons are known."""
        first, second = self._difference.workers
        one = yield from _run(Experiment(first, without, virtual_workers))
        two = yield from _run(Experiment(second, without, virtual_workers))
        if one is None or two is None:
            return False
        apart = distance(one, two)
        if apart > self._rounding:
            return False
        how = f"with virtual_workers={virtual_workers}" if virtual_workers else "without the part below"
        self._know(f"{how} they are the same {self._but(apart)}.")
        self._conclude(because, sure=True)
        return True

    def _all_parts(self) -> list[Reason]:
        parts = self._parts
        if self._virtual:
            return [reasons.VIRTUAL]
        known = (
            (parts.silent, reasons.drawing), (parts.drawing, reasons.drawing),
            (parts.tensorflow, reasons.tensorflow), (parts.normalizing, reasons.normalizing),
        )  # fmt: skip
        return [reason(names) for names, reason in known if names]

    def _know(self, what: str) -> None:
        self._observations.append(what)

    def _but(self, apart: float) -> str:
        return f"but for rounding ({apart:.2g} of their largest value)" if apart else "bit for bit"

    def _conclude(self, because: list[Reason], *, sure: bool = False) -> None:
        self._reasons, self._sure = list(because), sure


def distance(one: Gradients, two: Gradients) -> float:
    """Return the largest difference of gradients, relative to the largest value of all of them."""
    largest = max((np.abs(part).max(initial=0.0) for part in one), default=0.0)
    apart = max((np.abs(a - b).max(initial=0.0) for a, b in zip(one, two, strict=True)), default=0.0)
    if apart == 0:
        return 0.0
    return float(apart / largest) if largest and np.isfinite(apart) else math.inf


def _run(experiment: Experiment) -> Generator[Experiment, None, Gradients | None]:
    """Return the gradients of an experiment, after the caller has run it."""
    yield experiment
    return experiment.gradients
