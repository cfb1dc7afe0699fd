"""The outcome of a job: its numbers, and where its model is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs

from tfdistr._version import __version__
from tfdistr.data.form import Form
from tfdistr.jobs.documents import plain_params
from tfdistr.schemas import schema_id
from tfdistr.schemas.normal_form import as_json
from tfdistr.training.job import EpochRange
from tfdistr.training.model_state import LazyModel
from tfdistr.utils.metric_values import columns_of

if TYPE_CHECKING:
    import keras

    from tfdistr.jobs.result import FitResult


@attrs.define(slots=False)
class Outcome:
    """The data of a `FitResult`, which describes the attributes."""

    history: dict[str, list[Any]]
    params: dict[str, Any]
    workers: list[dict[str, Any]]
    run_dir: str | None
    _trained: LazyModel = attrs.field(repr=False)
    _form: Form = attrs.field(factory=Form, repr=False)

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics after the last epoch."""
        return {name: values[-1] for name, values in self.history.items() if values}

    def to_dict(self) -> dict[str, object]:
        """Return the result without its model, in JSON types; ``schemas/result.schema.json`` describes it.

        Numbers that are not finite are "nan", "inf" and "-inf". A job on workers writes the same into
        ``result.json`` of its run directory.

        Returns:
            The members schema, tfdistr (the version), history, metrics, params, workers and run_dir.

        Example:
            >>> fit.to_dict()["metrics"] == fit.metrics
            True
        """
        document: dict[str, Any] = as_json(
            {
                "schema": schema_id("result"),
                "tfdistr": __version__,
                "history": self.history,
                "metrics": self.metrics,
                "params": plain_params(self.params),
                "workers": self.workers,
                "run_dir": self.run_dir,
            }
        )
        return document


def with_recipe(
    outcome: FitResult, recipe: object, build: Callable[[], keras.Model] | None = None
) -> FitResult:
    """Return the result with another way to make its model; see `LazyModel`."""
    return attrs.evolve(outcome, trained=outcome._trained.with_recipe(recipe, build))


def without_run(outcome: FitResult, *, run_dir: bool) -> FitResult:
    """Return the result without what differs between runs: times, processes, a temporary ``run_dir``."""
    lasting = {"index", "task", "status"}
    rows = [{name: value for name, value in row.items() if name in lasting} for row in outcome.workers]
    return attrs.evolve(outcome, workers=rows, run_dir=outcome.run_dir if run_dir else None)


def epochs_of(outcome: Outcome) -> dict[str, list[int]]:
    """Return the numbers, from 1, of the epochs that have a value of each metric; see ``columns_of()``."""
    first = outcome.params["initial_epoch"]
    made = range(first, first + max(map(len, outcome.history.values()), default=0))
    known = EpochRange(made.stop, first, outcome.params["validation_freq"])
    trained = [epoch + 1 for epoch in made]
    validated = [epoch + 1 for epoch in made if known.validates(epoch)]
    return {name: validated if name.startswith("val_") else trained for name in columns_of(outcome.history)}


def rows_of(outcome: Outcome) -> list[tuple[int, str, float, str]]:
    """Return the history as rows (epoch, metric, value, data)."""
    rows, epochs = [], epochs_of(outcome)
    for name, values in columns_of(outcome.history).items():
        data = "validation" if name.startswith("val_") else "training"
        metric = name.removeprefix("val_")
        numbered = zip(epochs[name], values, strict=True)
        rows += [(epoch, metric, value, data) for epoch, value in numbered]
    return rows
