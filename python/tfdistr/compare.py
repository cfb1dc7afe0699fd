"""``compare_strategies()``: which strategy is the fastest for a model, on this machine."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tfdistr.clusters.local.local_cluster import describe_local_cluster
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

#: Names of strategies, or strategies with options, or one of them.
Strategies = str | Strategy | Sequence[str | Strategy]
COLUMNS = ("strategy", "workers", "seconds_per_epoch", "examples_per_second", "loss", "error")


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
        width = max(len(row.strategy) for row in self.rows)
        lines = [f"{'strategy':{width}}  workers  s/epoch  examples/s    loss"]
        for row in self.rows:
            speed, rate, loss = (
                "-" if value is None else f"{value:{form}}"
                for value, form in (
                    (row.seconds_per_epoch, ".2f"), (row.examples_per_second, ",.0f"), (row.loss, ".4f"),
                )
            )  # fmt: skip
            line = f"{row.strategy:{width}}  {row.workers:7}  {speed:>7}  {rate:>10}  {loss:>6}"
            lines.append(f"{line}  {row.error or ''}".partition("\n")[0].rstrip())
        return "\n".join(lines)


def compare_strategies(
    model: Callable[[], Any] | keras.Model,
    x: Any,
    y: Any = None,
    *,
    strategies: Strategies = ("one_device", "multi_worker_mirrored"),
    workers: int | Sequence[int] = 2,
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
    model = as_model_factory(model)
    return compare(
        lambda given: distributed_fit(model, x, y, **{"verbose": 0} | arguments, **given),
        strategies=strategies, workers=workers, epochs=epochs, env=env, arguments=arguments,
    )  # fmt: skip


def compare(
    train: Callable[[dict[str, Any]], FitResult],
    *,
    strategies: Strategies,
    workers: int | Sequence[int],
    epochs: int,
    env: Mapping[str, str] | None,
    arguments: Iterable[str],
    words: Callable[[TfdistrError], str] = str,
) -> Comparison:
    """Train once for each strategy and number of workers, and measure; see ``compare_strategies()``.

    Args:
        train: Called with the arguments of ``distributed_fit()`` that the comparison chooses.
        arguments: The names of the arguments that the user chooses.
        words: Returns the text of an error.
    """
    check_int("epochs", epochs, minimum=2)
    fixed = [name for name in arguments if name in ("cluster", "strategy", "run_dir")]
    if fixed:
        raise ArgumentError(
            "compare_strategies() chooses the strategy, the cluster and the folder of each run itself.",
            received=", ".join(fixed),
            fix="Leave it out.",
        )
    rows = []
    for strategy, number in _runs(strategies, workers):
        name = strategy.name
        with tempfile.TemporaryDirectory(prefix="tfdistr-compare-") as folder:
            given = {
                "cluster": describe_local_cluster(number, ps=strategy.ps, env=env),
                "strategy": strategy, "epochs": epochs, "run_dir": os.path.join(folder, "run"),
            }  # fmt: skip
            try:
                fit = train(given)
                rows.append(Measured(name, number, *speed_of(fit), loss=fit.metrics.get("loss")))
            except ArgumentError:  # the other runs would fail, too
                raise
            except TfdistrError as error:
                rows.append(Measured(name, number, error=words(error)))
    return Comparison(tuple(rows))


def _runs(strategies: Strategies, workers: int | Sequence[int]) -> list[tuple[Strategy, int]]:
    """Return the strategy and the number of workers of each run."""
    one = isinstance(strategies, Strategy)
    chosen = [as_strategy(each) for each in ([strategies] if one else _listed(strategies))]
    numbers = sorted({check_int("workers", number) for number in _listed(workers)})
    if not chosen or not numbers or isinstance(strategies, Mapping):
        raise ArgumentError(
            "`strategies` and `workers` must each be a value, or a list with at least one.",
            received=f"strategies={strategies!r}, workers={workers!r}",
            fix='Pass strategies=["one_device", mirrored(devices=["cpu:0"])], workers=[1, 2], for example.',
        )
    return [
        (strategy, number)
        for strategy in chosen
        for number in ([1] if strategy.max_workers == 1 else numbers)
    ]


def speed_of(fit: FitResult) -> tuple[float, float | None]:
    """Return the seconds per epoch of a training run, and its examples per second, if they are known."""
    assert fit.run_dir is not None
    events = EventReader(fit.run_dir, len(fit.workers)).poll()
    seconds: dict[int, float] = {}
    for event in events:
        if event["event"] == "epoch_end":  # the slowest worker counts
            seconds[event["epoch"]] = max(seconds.get(event["epoch"], 0.0), event["seconds"])
    per_epoch = statistics.median([seconds[epoch] for epoch in sorted(seconds)[1:]] or seconds.values())
    examples = next((event.get("examples") for event in events if event["event"] == "train_begin"), None)
    return per_epoch, examples / per_epoch if examples else None


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, str | int | float) else list(value or ())
