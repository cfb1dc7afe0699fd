"""The outcome of a job: its numbers, and where its model is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tfdistr._version import __version__
from tfdistr.data.source import Form
from tfdistr.jobs.documents import plain_params
from tfdistr.schemas import schema_id
from tfdistr.schemas.normal_form import as_json
from tfdistr.training.model_state import LazyModel

if TYPE_CHECKING:
    from typing import Self

    import keras


@dataclass
class Outcome:
    """The data of a `FitResult`, which describes the attributes."""

    history: dict[str, list[float]]
    params: dict[str, Any]
    workers: list[dict[str, Any]]
    run_dir: str | None
    trained: LazyModel = field(repr=False)
    form: Form = field(default_factory=Form, repr=False)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics after the last epoch."""
        return {name: values[-1] for name, values in self.history.items() if values}

    def with_recipe(self, recipe: Any, build: Callable[[], keras.Model] | None = None) -> Self:
        """Return the result with another way to make its model; see `LazyModel`."""
        return replace(self, trained=self.trained.with_recipe(recipe, build))

    def to_dict(self) -> dict[str, Any]:
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
