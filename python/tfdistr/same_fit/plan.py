"""The trainings that are compared, and their arguments."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from tfdistr.checkpoint.trace import read_trace
from tfdistr.errors import ArgumentError
from tfdistr.jobs.result import FitResult
from tfdistr.jobs.strategies import MultiWorkerMirrored, as_strategy
from tfdistr.same_fit.difference import find_difference
from tfdistr.training.per_worker import PerWorker
from tfdistr.utils.arguments import as_number, check_int
from tfdistr.utils.describe import describe

_TOLERANCE = 1e-6
#: Arguments of all trainings, if the user gives no others.
_DEFAULTS = {"verbose": 0, "seed": 1}
_OWN = ("cluster", "run_dir", "resume")


@attrs.frozen
class Plan:
    """The trainings that are compared.

    Attributes:
        workers: The numbers of workers, in ascending order.
        tolerance: The largest difference that is allowed.
        arguments: The arguments of ``distributed_fit()`` beside the model, the data and the cluster.
        strategy: The strategy among them.
    """

    workers: tuple[int, ...]
    tolerance: float
    arguments: dict[str, Any]
    strategy: MultiWorkerMirrored

    def explained(
        self,
        fits: Sequence[FitResult],
        outputs: Sequence[object],
        train: Callable[[int, dict[str, Any]], FitResult],
    ) -> str | None:
        """Compare the results, and return the message about the first difference; None if there is none."""
        found = find_difference(fits, outputs, self.workers, self.tolerance)
        if found is None:
            return None
        from tfdistr import tf_internals
        from tfdistr.same_fit.explanation import Run, explain

        with tempfile.TemporaryDirectory(prefix="tfdistr-") as folder:

            def run(number: int) -> Run:
                run_dir = tempfile.mkdtemp(dir=folder)
                return Run(train(number, self.arguments_in(run_dir)).history, read_trace(Path(run_dir)).steps)

            layers = [fits[0].model, *tf_internals.all_layers(fits[0].model)]
            half = any("16" in str(layer.compute_dtype) for layer in layers)
            explanation = explain(
                found, fits[0].history, fits[self.workers.index(found.workers[1])].params["differences"], run,
                virtual=self.arguments.get("virtual_workers") is not None,
                sixteen_bits=half or self.strategy.gradient_dtype != "float32",
                callbacks=self.arguments.get("callbacks") is not None,
            )  # fmt: skip
        return explanation.message(found, self.workers[-1])

    def arguments_in(self, run_dir: str) -> dict[str, Any]:
        """Return the arguments of a training that leaves its trace in a folder."""
        every = self.arguments.get("checkpoint_every") or "epoch"
        return self.arguments | {"run_dir": run_dir, "checkpoint_every": every}


def plan_same_fit(model: object, workers: object, tolerance: object, arguments: Mapping[str, object]) -> Plan:
    """Check the arguments of a comparison, and plan it; see ``assert_same_fit()``."""
    if isinstance(model, FitResult):
        raise ArgumentError(
            "`model` must be a function that builds and compiles a model, or a compiled model.",
            received=describe(model),
            fix="Pass the function that has built the model, or the model of the fit: fit.model.",
        )
    _check_names(arguments)
    strategy = _strategy_of_same_steps(arguments)
    virtual = arguments.get("virtual_workers") is not None
    return Plan(
        _numbers(workers), _tolerance(tolerance, virtual=virtual), _DEFAULTS | dict(arguments), strategy
    )


def _check_names(arguments: Iterable[str]) -> None:
    own = [name for name in arguments if name in _OWN]
    if own:
        raise ArgumentError(
            "A comparison of numbers of workers chooses the cluster and the folder of each training itself.",
            received=", ".join(own),
            fix="Leave it out.",
        )


def _strategy_of_same_steps(arguments: Mapping[str, object]) -> MultiWorkerMirrored:
    strategy = as_strategy(arguments.get("strategy", MultiWorkerMirrored.name))
    if not isinstance(strategy, MultiWorkerMirrored):
        raise ArgumentError(
            "A comparison of numbers of workers needs the strategy multi_worker_mirrored().",
            received=f"strategy={strategy.name!r}",
            fix="Leave it out, or pass strategy=multi_worker_mirrored().",
        )
    if isinstance(arguments.get("batch_size"), PerWorker):
        raise ArgumentError(
            "Compared trainings must have the same global batch and the same learning rate on every number "
            "of workers.",
            received="batch_size=per_worker(...)",
            fix="Pass batch_size=64, for example.",
        )
    return strategy


def _numbers(workers: object) -> tuple[int, ...]:
    listed = workers if isinstance(workers, Iterable) and not isinstance(workers, str) else [workers]
    numbers = tuple(sorted({check_int("workers", number) for number in listed}))
    if len(numbers) < 2:
        raise ArgumentError(
            "`workers` must have at least two different numbers of workers, to compare the results.",
            received=f"workers={list(numbers)}",
            fix="Pass workers=[1, 2], for example.",
        )
    return numbers


def _tolerance(tolerance: object, *, virtual: bool) -> float:
    if tolerance is None:
        return 0.0 if virtual else _TOLERANCE
    number = as_number(tolerance)
    if not 0 <= number < math.inf:
        raise ArgumentError(
            "`tolerance` must be a number of at least 0.",
            received=repr(tolerance),
            fix="Pass tolerance=1e-6, or 0 for bitwise identical results.",
        )
    return number
