"""``compare_strategies()``: which strategy is the fastest for a model, on this machine."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tfdistr.clusters.local.cluster import describe_local_cluster
from tfdistr.errors import ArgumentError, TfdistrError
from tfdistr.fit import distributed_fit
from tfdistr.jobs.result import FitResult
from tfdistr.jobs.strategies import Strategy, as_strategy
from tfdistr.supervision.events import EventReader
from tfdistr.training.model_copies.given_model import as_model_factory
from tfdistr.utils.arguments import check_int
from tfdistr.utils.packages import data_frame, figure

if TYPE_CHECKING:
    import keras
    import matplotlib.figure
    import pandas

COLUMNS = ("strategy", "workers", "seconds_per_epoch", "examples_per_second", "loss", "error")


@dataclass(frozen=True)
class PlannedRun:
    """One training run of a comparison: a strategy on a number of workers.

    Attributes:
        strategy: The strategy, with its options.
        workers: Number of workers.
    """

    strategy: Strategy
    workers: int

    @property
    def ps(self) -> int:
        """Number of parameter servers of the run."""
        return self.strategy.ps


@dataclass(frozen=True)
class Measured:
    """The measurement of a run; ``Comparison`` describes the fields."""

    strategy: str
    workers: int
    seconds_per_epoch: float | None = None
    examples_per_second: float | None = None
    loss: float | None = None
    error: str | None = None


@dataclass(frozen=True)
class Comparison:
    """The measurements of ``compare_strategies()``.

    Attributes:
        rows: One row for each strategy and number of workers. ``seconds_per_epoch`` is the median over all
            epochs but the first, in which TensorFlow compiles the step. ``examples_per_second`` is the speed
            in such an epoch. ``loss`` is the loss of the last epoch. ``error`` says why the measurements
            are missing. The other fields are ``strategy`` and ``workers``.
    """

    rows: tuple[Measured, ...]

    def columns(self) -> dict[str, list[Any]]:
        """The rows by column."""
        return {name: [getattr(row, name) for row in self.rows] for name in COLUMNS}

    def to_frame(self) -> pandas.DataFrame:
        """The rows as a data frame.

        Raises:
            ArgumentError: pandas is not installed.
        """
        frame: pandas.DataFrame = data_frame([asdict(row) for row in self.rows], list(COLUMNS))
        return frame

    def plot(self) -> matplotlib.figure.Figure:
        """Plot the examples per second: one bar for each strategy and number of workers.

        Raises:
            ArgumentError: matplotlib is not installed.
        """
        drawn: matplotlib.figure.Figure = figure(6, 0.5 * len(self.rows) + 1)
        panel = drawn.subplots()
        labels = [f"{row.strategy}, {row.workers}" for row in self.rows]
        panel.barh(labels, [row.examples_per_second or 0.0 for row in self.rows])
        panel.invert_yaxis()
        panel.set(xlabel="examples per second", ylabel="strategy, workers")
        return drawn

    def __str__(self) -> str:
        head = ["strategy", "workers", "s/epoch", "examples/s", "loss"]
        lines = [head]
        for row in self.rows:
            numbers = [
                "-" if value is None else f"{value:{form}}"
                for value, form in (
                    (row.seconds_per_epoch, ".2f"), (row.examples_per_second, ",.0f"), (row.loss, ".4f"),
                )
            ]  # fmt: skip
            lines.append([row.strategy, str(row.workers), *numbers, (row.error or "").partition("\n")[0]])
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        return "\n".join(
            "  ".join(
                text.ljust(width) if column == 0 else text.rjust(width)
                for column, (text, width) in enumerate(zip(line, widths, strict=False))
            )
            + "".join(f"  {error}" for error in line[len(head) :] if error)
            for line in lines
        )


def compare_strategies(
    model: Callable[[], Any] | keras.Model,
    x: Any,
    y: Any = None,
    *,
    strategies: Any = ("one_device", "multi_worker_mirrored"),
    workers: Any = 2,
    epochs: int = 3,
    env: Mapping[str, str] | None = None,
    **arguments: Any,
) -> Comparison:
    """Compare the speed of strategies on this machine.

    The model is trained with several strategies and numbers of workers, one after another. Each run has new
    processes, so that no run affects the next.

    Args:
        model: Function without arguments that builds and compiles the model, or a compiled model, which is
            not changed: each run trains a copy.
        x: Inputs, as for ``distributed_fit()``.
        y: Targets, where ``x`` is arrays.
        strategies: Names of strategies, or objects with options, such as ``mirrored(devices=["cpu:0"])``.
        workers: The number of workers, or several numbers. A strategy that trains in one process runs with
            one worker only. A strategy with parameter servers gets one parameter server beside the workers.
        epochs: Number of epochs, at least 2: the first epoch is not measured.
        env: Environment variables for the workers.
        arguments: Further arguments of ``distributed_fit()``, such as ``batch_size``.

    Returns:
        A ``Comparison`` with ``rows``, ``to_frame()`` and ``plot()``. A run that failed has an ``error``.

    Raises:
        ArgumentError: An argument is not of the form above.

    Example:
        >>> compared = tfdistr.compare_strategies(model, tfdistr.load_dataset("digits"), workers=[1, 2])
        >>> [(row.strategy, row.workers) for row in compared.rows]
        [('one_device', 1), ('multi_worker_mirrored', 1), ('multi_worker_mirrored', 2)]
    """
    check(epochs, arguments)
    model = as_model_factory(model)
    return compare(
        lambda given: distributed_fit(model, x, y, **{"verbose": 0} | arguments, **given),
        strategies=strategies, workers=workers, epochs=epochs, env=env, arguments=arguments,
    )  # fmt: skip


def compare(
    train: Callable[[dict[str, Any]], FitResult],
    *,
    strategies: Any,
    workers: Any,
    epochs: Any,
    env: Any,
    arguments: Iterable[str],
    words: Callable[[TfdistrError], str] = str,
) -> Comparison:
    """Train once for each strategy and number of workers, and measure; see ``compare_strategies()``.

    Args:
        train: Called with the arguments of ``distributed_fit()`` that the comparison chooses.
        strategies: The strategies.
        workers: The numbers of workers.
        epochs: The number of epochs.
        env: Environment variables for the workers.
        arguments: The names of the arguments that the user chooses.
        words: Returns the text of an error.

    Raises:
        ArgumentError: An argument is not of the form above.
    """
    check(epochs, arguments)
    rows = []
    for run in plan(strategies, workers):
        with tempfile.TemporaryDirectory(prefix="tfdistr-compare-") as folder:
            given = {
                "cluster": describe_local_cluster(run.workers, ps=run.ps, env=env),
                "strategy": run.strategy, "epochs": epochs, "run_dir": os.path.join(folder, "run"),
            }  # fmt: skip
            try:
                rows.append(measured(run, train(given)))
            except ArgumentError:  # the other runs would fail, too
                raise
            except TfdistrError as error:
                rows.append(Measured(run.strategy.name, run.workers, error=words(error)))
    return Comparison(tuple(rows))


def check(epochs: Any, arguments: Iterable[str]) -> None:
    """Check the arguments that all runs of a comparison share.

    Args:
        epochs: Number of epochs.
        arguments: Names of the further arguments of ``distributed_fit()``.

    Raises:
        ArgumentError: There are too few epochs, or the comparison itself sets one of the arguments.
    """
    check_int("epochs", epochs, minimum=2)
    fixed = [name for name in arguments if name in ("cluster", "strategy", "run_dir")]
    if fixed:
        raise ArgumentError(
            "compare_strategies() chooses the strategy, the cluster and the folder of each run itself.",
            received=", ".join(fixed),
            fix="Leave it out.",
        )


def plan(strategies: Any, workers: Any) -> list[PlannedRun]:
    """The runs of a comparison, in order.

    Raises:
        ArgumentError: A strategy or an option does not exist, or a number of workers is not valid.
    """
    if isinstance(strategies, Mapping):
        raise ArgumentError(
            "`strategies` must be a list of strategies; each has its own options.",
            received=repr(strategies),
            fix='Pass strategies=["one_device", mirrored(devices=["cpu:0"])], for example.',
        )
    one = isinstance(strategies, Strategy)
    chosen = [as_strategy(each) for each in ([strategies] if one else _listed(strategies))]
    numbers = sorted({check_int("workers", number) for number in _listed(workers)})
    if not chosen or not numbers:
        raise ArgumentError(
            "`strategies` and `workers` must each have at least one value.",
            received=f"strategies={strategies!r}, workers={workers!r}",
            fix='Pass strategies=["one_device", "multi_worker_mirrored"], workers=[1, 2], for example.',
        )
    runs = []
    for strategy in chosen:
        tried = [1] if strategy.max_workers == 1 else numbers
        runs += [PlannedRun(strategy, number) for number in tried]
    return runs


def measured(run: PlannedRun, fit: FitResult) -> Measured:
    """The measurement of a run."""
    assert fit.run_dir is not None
    events = EventReader(fit.run_dir, len(fit.workers)).poll()
    seconds: dict[int, float] = {}
    for event in events:
        if event["event"] == "epoch_end":  # the slowest worker counts
            seconds[event["epoch"]] = max(seconds.get(event["epoch"], 0.0), event["seconds"])
    per_epoch = statistics.median([seconds[epoch] for epoch in sorted(seconds)[1:]] or seconds.values())
    examples = next((event.get("examples") for event in events if event["event"] == "train_begin"), None)
    return Measured(
        run.strategy.name,
        run.workers,
        seconds_per_epoch=per_epoch,
        examples_per_second=examples / per_epoch if examples else None,
        loss=fit.metrics.get("loss"),
    )


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, str | int | float) else list(value or ())
