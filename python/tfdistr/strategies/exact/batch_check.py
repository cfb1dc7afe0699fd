"""A check on the first batch that a step which is split over the workers is the step of one worker.

All workers make steps on a few rows: each on all of them, as one worker would, and then together, each on its
part, as in the training. What the steps change must be the same: the gradients that optimizers get,
variables, metrics, logs. Everything is restored. Models of which all parts are known to treat each row by
itself (``row_wise``) are not checked.

Losses and metrics of ``compile()`` that are functions of the whole batch get the rows of all workers
(``over_batch``). What is left is a warning.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.strategies.exact import over_batch
from tfdistr.strategies.exact.known_steps import KnownLogs
from tfdistr.strategies.exact.loss_weighting import count_examples
from tfdistr.strategies.exact.mixing_layers import mixing_layers
from tfdistr.strategies.exact.replica import OneReplica
from tfdistr.strategies.exact.row_wise import unproved_parts
from tfdistr.strategies.exact.rows_of_all import (
    batches_of_all,
    concatenated,
    exchanged,
    rows_between,
    sorted_rows,
    with_repeated_labels,
)
from tfdistr.strategies.exact.step_effects import Effects
from tfdistr.strategies.exact.step_probe import StepProbe
from tfdistr.utils.warn import ABOUT_BATCH, NOTE

log = logging.getLogger("tfdistr")

# Rows of a worker, and of all workers.
_ROWS, _ALL_ROWS = 8, 32
# Differences relative to what is compared. In 32 bits, rounding made less than 1e-5 of it in the about
# 100 models of tests/equality, and a batch loss made at least 1e-4 in those of test_batch_check.py.
_TOLERANCE = {"float32": 5e-5, "float64": 1e-8}
_TOLERANCE_OF_16_BITS = 5e-2
#: Seconds that the steps on all rows may take.
LONGEST = 10.0
#: Bytes of weights of which the check makes copies.
LARGEST_WEIGHTS = 200 * 1024 * 1024
#: Bytes of rows that the workers gather in a step for a loss or a metric, if the gradients are smaller.
_GATHERED = 16 * 1024 * 1024

_GATHER = (
    "Gather the rows of all workers there with tfdistr.gather(); in train_step, take gradients with "
    "tape.gradient(), which gives those of the whole batch"
)
_MEAN = "Return the mean over the rows, or one loss for each row; in add_loss(), add the mean"
_WAYS_OUT = (
    "pass virtual_workers, with which the result is the same on any number of workers; or, if you know this, "
    "filter warnings of the class BatchLossWarning (R: tfdistr_warning_batch_loss)."
)

#: A loss that cannot be weighted by the rows of a worker.
SUM = "a sum over the rows, and workers weight their losses as means"
SEVERAL_ROWS = "several rows of a batch at once, and a worker has only its own"
OWN_CHANGES = "each worker changes it with its own rows only"

#: The kind and the name of an effect, and its difference.
Difference = tuple[str, str, float]
#: Returns a few rows of the data; None if they cannot be read without an effect.
Look = Callable[[], object]


def check_batch(
    extended: OneReplica,
    model: keras.Model,
    look: Look,
    weigh: Callable[[Any], object] | None = None,
    *,
    kind: str = "train",
    alone: bool = True,
) -> None:
    """Warn, once for a model, if its split step is not the step of one worker. All workers must call it."""
    several = extended.num_workers > 1 or extended.virtual is not None
    if not (several and extended.one_replica):
        return
    known = extended.known.of(model)
    if kind not in known.checked:
        check = _Check(extended, model, kind)
        with tf_internals.undisturbed_random_numbers() if alone else contextlib.nullcontext():
            check.run(look, weigh)
        known.checked[kind] = check.differences
        if check.by_common_seeds:  # make it now: all workers share its first state, which a trace cannot do
            with extended.strategy.scope():
                tf_internals.global_seed_generator()
    extended.differences += known.checked[kind]


class _NotPossibleError(Exception):
    """The check is not possible, for the reason in its text."""


class _Check:
    """The check of one step of a model; the arguments are those of ``check_batch``."""

    def __init__(self, extended: OneReplica, model: keras.Model, kind: str) -> None:
        self._extended, self._model, self._kind = extended, model, kind
        self._shares = extended.virtual.count if extended.virtual else extended.num_workers
        self._parts: list[str] = []
        #: What the chief has said.
        self.differences: list[str] = []
        #: Whether a step draws with Keras's global generator of random numbers.
        self.by_common_seeds = False

    def run(self, look: Look, weigh: Callable[[Any], object] | None) -> None:
        """Check the model, and log the result on the chief."""
        self._parts = self._exchanged(unproved_parts(self._model))[0]
        if not self._parts:
            return
        try:
            whole, own = self._rows(look, weigh)
            finite = self._is_split_exactly(whole, own, perturbed=True)
            finite = finite or self._is_split_exactly(whole, own, perturbed=False)
        except _NotPossibleError as error:
            what = f"whether the result is that of one worker ({_listed(self._parts)})"
            self._say(f"Not checked {what}: {error}", NOTE)
            return
        if not finite:
            self._say(
                f"Cannot check whether {_listed(self._parts)} can be split over workers: the gradient is not "
                "finite on the first rows of the data. Check for values that are not finite, and for a "
                "division by zero.",
                ABOUT_BATCH,
            )

    def _exchanged(self, note: object) -> list[Any]:
        return exchanged(self._extended.collectives, note)

    def _all_can(self, reason: str | None) -> None:
        """Continue unless a worker has a reason against it."""
        reasons = [each for each in self._exchanged(reason) if each is not None]
        if reasons:
            raise _NotPossibleError(reasons[0])

    def _rows(self, look: Look, weigh: Callable[[Any], object] | None) -> tuple[Any, Any]:
        """Return the batches of the check, and this worker's parts of them, as ``StepProbe`` takes them.

        All workers have as many rows, but in further steps the last one has one less.
        """
        rows, reason = None, self._reason_of_model()
        if reason is None:
            try:
                rows = look()
                rows = weigh(rows) if weigh and rows is not None else rows
            except Exception as error:  # the user's data can raise anything, and will do it again
                reason = f"its data cannot be read: {_first_line(error)}"
            if rows is None and reason is None:
                reason = "Python code yields its data, which cannot be read twice."
        self._all_can(reason)
        counts = self._exchanged(int(count_examples(rows)))
        workers = len(counts)
        count = min(_ROWS, max(2, _ALL_ROWS // workers), *counts)
        while count and count * workers % self._shares:  # each share has as many rows
            count -= 1
        if count * workers < max(2, self._shares):
            raise _NotPossibleError("the first batch has too few rows.")
        self._batch = sum(counts)
        batches = batches_of_all(self._extended.collectives, rows_between(rows, 0, count))
        whole = with_repeated_labels(sorted_rows(concatenated(batches)))
        last = self._extended.worker_index == workers - 1
        own = [rows_between(whole, count * self._extended.worker_index, count)]
        fewer = count > 1 and self._extended.virtual is None
        own.append(rows_between(own[0], 0, count - 1) if fewer and last else own[0])
        return [whole, rows_between(whole, 0, count * workers - fewer)], own

    def _reason_of_model(self) -> str | None:
        if self._model.run_eagerly:
            return "it runs eagerly, and may change more than variables."
        if _bytes_of(self._model.trainable_variables) > LARGEST_WEIGHTS:
            return "its weights are too large to be copied."
        return None

    def _is_split_exactly(self, whole: Any, own: Any, *, perturbed: bool) -> bool:
        """Compare the steps on all rows with those on parts; return False if gradients are not finite."""
        probe = StepProbe(self._extended, self._model, self._kind)
        with probe.prepared(perturbed=perturbed, together=True):
            expected, again = self._steps_of_one(probe, whole, own)
            # Another processor may round in another way, but all workers must make the same steps.
            finite, probe.steps = self._exchanged([expected.is_finite, probe.steps])[0]
            if not finite:
                return False
            split = probe.split(own, expected)
        self.by_common_seeds = probe.by_common_seeds
        noise = {(kind, name): size for kind, name, size in expected.differences(again)}
        tolerance = _tolerance(self._model)
        sums = expected.sums(split, tolerance)
        self._extended.known.of(self._model).logs[self._kind] = KnownLogs(sums, expected.results)
        apart = [
            (kind, name, size)
            for kind, name, size in expected.differences(split)
            if not (kind == "log" and name in sums) and size > tolerance + 10 * noise.get((kind, name), 0.0)
        ]
        found = [tuple(each) for worker in self._exchanged(apart) for each in worker]
        if found and self._extended.is_chief:
            layers: dict[str, bool] = {}
            with contextlib.suppress(Exception):  # the user's code; the other workers are not here
                layers = self._mixing_layers(whole)
            are_sums = expected.are_sums(split, self._shares, tolerance)
            because = _because(self._parts, layers, are_sums=are_sums)
            way = _MEAN if SUM in because else _GATHER
            self._say(_message(found, because), ABOUT_BATCH, f". {way}; {_WAYS_OUT}")
        return True

    def _mixing_layers(self, rows: Any) -> dict[str, bool]:
        """Return the layers that use several rows at once; see ``mixing_layers()``."""
        probe = StepProbe(self._extended, self._model, self._kind)
        layers = tf_internals.all_layers(self._model)
        with probe.prepared(perturbed=True), over_batch.first_calls(layers, "call") as calls:
            probe.whole(rows)
        with (
            probe.prepared(perturbed=True),
            self._extended.without_peers(),
            tf_internals.silent_batch_statistics(self._model),
        ):
            return mixing_layers(calls, int(count_examples(rows[0])), self._shares, _tolerance(self._model))

    def _steps_of_one(self, probe: StepProbe, rows: Any, own: Any) -> tuple[Effects, Effects]:
        """Make the steps on all rows, twice; find the losses and metrics over the batch.

        The steps on this worker's rows are made as well: later, an error would leave the peers waiting.
        """
        began, reason = time.monotonic(), None
        expected, again, calls = Effects(), Effects(), over_batch.Calls()
        found = tf_internals.OverBatch([], [])
        try:
            with over_batch.observed(self._model) as calls:
                expected = probe.whole(rows)
            if time.monotonic() - began > LONGEST:
                reason = f"a step on {int(count_examples(rows[0]))} rows takes too long."
            elif expected.is_finite:
                again = probe.whole(rows)
                probe.whole(own)
                with self._extended.without_peers():
                    found = over_batch.over_batch(
                        calls, int(count_examples(rows[0])), self._shares, _tolerance(self._model)
                    )
            if probe.draws:
                reason = "it draws numbers by TensorFlow's seeds. Draw with a keras.random.SeedGenerator."
            elif probe.is_idle(expected):
                reason = f"no optimizer changes weights in its first {probe.steps} steps."
        except Exception as error:  # the step itself will raise it, with its full traceback
            log.debug("The check of the first batch failed", exc_info=True)
            reason = f"a step on its first rows raised {type(error).__name__}: {_first_line(error)}"
        self._all_can(reason)
        self._gather(found, calls)
        return expected, again

    def _gather(self, found: tf_internals.OverBatch, calls: over_batch.Calls) -> None:
        """Let losses and metrics get the rows of all workers, if these are not too many bytes."""
        known, metrics = self._extended.known.of(self._model), tf_internals.all_metrics(self._model)
        limit = max(_GATHERED, _bytes_of(self._model.trainable_variables))
        gathered = [n for n in found.losses if not tf_internals.is_of_sums(calls.losses[n][0])]
        per_row = over_batch.bytes_per_row(tf_internals.OverBatch(gathered, found.metrics), calls)
        if per_row * self._batch > limit:
            found = tf_internals.OverBatch([n for n in found.losses if n not in gathered], [])
        own = [list(found.losses), [n for n, metric in enumerate(metrics) if metric in found.metrics]]
        losses, numbers = self._exchanged(own)[0]
        before = known.over_batch
        for number in calls.losses:
            known.losses.setdefault(number, number in losses)
        for number, metric in enumerate(metrics):
            if id(metric) in calls.metrics:
                known.metrics.setdefault(id(metric), (metric, number in numbers))
        new = [calls.losses[n][0].name for n in known.over_batch.losses if n not in before.losses]
        new += [metric.name for metric in known.over_batch.metrics if metric not in before.metrics]
        if new and self._extended.is_chief:
            log.warning(
                "%s: computed with the rows of all workers, as a function of the whole batch (%d kB per "
                "step).", ", ".join(new), -(-per_row * self._batch // 1024), extra=NOTE,
            )  # fmt: skip

    def _say(self, message: str, kind: Mapping[str, object], way_out: str = "") -> None:
        """Log a message on the chief; without the way out, it is also a difference of the result."""
        if self._extended.is_chief:
            log.warning("%s", message + way_out, extra=kind)
            self.differences.append(message)


def _because(parts: Sequence[str], layers: Mapping[str, bool], *, are_sums: bool) -> str:
    """Return why gradients are not those of one worker: ``parts`` or ``layers`` may be the cause."""
    if are_sums and not layers:
        return f"the loss is {SUM}"
    mixing = [name for name in layers if not layers[name]]
    adding = [name for name in layers if layers[name]]
    causes = []
    if mixing or not adding:
        cause = _listed(mixing, "and") if mixing else _listed(parts, "or")
        use = "use" if len(mixing) > 1 else "uses"
        causes.append(f"{cause} {use} {SEVERAL_ROWS}")
    if adding:
        causes.append(f"{_listed(adding)} {'add' if len(adding) > 1 else 'adds'} a loss that is {SUM}")
    return "; ".join(causes)


def _message(found: Sequence[Difference], because: str) -> str:
    """Return the warning about effects that differ; metrics and logs may follow from a gradient."""
    worst: dict[str, tuple[str, float]] = {}
    for kind, name, size in found:
        if size > worst.get(kind, ("", 0.0))[1]:
            worst[kind] = name, size
    reasons = {
        "gradient": because,
        "variable": OWN_CHANGES,
        "metric": "what the workers' rows add to it does not add up",
        "log": "it is neither a mean over the rows nor a sum",
    }
    kinds = [kind for kind in reasons if kind in worst]
    shown = [kind for kind in kinds if kind in ("gradient", "variable")] or kinds
    effects = {kind: f"{_KINDS[kind]} {name} {_percent(size)}" for kind, (name, size) in worst.items()}
    sentences = [f"{effects[kind]} on the first rows, because {reasons[kind]}" for kind in shown]
    return f"The result on several workers is not that of one worker: {'; '.join(sentences)}"


_KINDS = {
    "gradient": "the gradient of",
    "variable": "the variable",
    "metric": "the metric variable",
    "log": "the log",
}


def _percent(size: float) -> str:
    return f"differs by {100 * size:.2g} %" if np.isfinite(size) else "is missing, or has another shape,"


def _listed(parts: Sequence[str], word: str = "and") -> str:
    return f" {word} ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]


def _bytes_of(variables: Sequence[Any]) -> int:
    return sum(int(np.prod(v.shape)) * tf.as_dtype(v.dtype).size for v in variables)


def _tolerance(model: keras.Model) -> float:
    kinds = {variable.dtype for variable in model.trainable_variables}
    kinds |= {layer.compute_dtype for layer in tf_internals.all_layers(model)} | {model.compute_dtype}
    return max(_TOLERANCE.get(kind, _TOLERANCE_OF_16_BITS) for kind in kinds if "float" in kind)
