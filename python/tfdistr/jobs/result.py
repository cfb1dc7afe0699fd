"""The result of ``distributed_fit()``, and how the trained model comes back from the chief."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tfdistr._utils.optional_imports import data_frame, figure
from tfdistr._utils.trusted_files import open_own
from tfdistr.training.model_values import set_values, values_of

if TYPE_CHECKING:
    import keras
    import matplotlib.figure
    import pandas

    from tfdistr.training.trained_model import Training

_WEIGHTS = "model.npz"
_SUMMARY = "training.json"


@dataclass
class FitResult:
    """The result of a training job.

    Attributes:
        history: Metric values by name, one for each epoch.
        metrics: The metrics after the last epoch.
        params: The numbers of the job: batch size, epochs, steps, seed, number of workers. ``communication``
            is what really carried the gradients between the workers: "mpi", "ring" or "nccl"; "none" if one
            worker trained, or if the strategy's workers exchange no gradients.
        workers: For each worker a dictionary with index, host, pid, status, seconds and log (the path of its
            output; None if it was this process).
        run_dir: Folder with the logs; None if the job ran in this process.
    """

    history: dict[str, list[float]]
    params: dict[str, Any]
    workers: list[dict[str, Any]]
    run_dir: str | None
    _make_model: Callable[[], keras.Model] = field(repr=False)
    _model: keras.Model | None = field(default=None, repr=False)

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics after the last epoch."""
        return {name: values[-1] for name, values in self.history.items() if values}

    @property
    def model(self) -> keras.Model:
        """The trained model, in this process. It is built at the first use."""
        if self._model is None:
            self._model = self._make_model()
        return self._model

    def to_frame(self) -> pandas.DataFrame:
        """The history as a data frame: one row for each epoch and metric.

        Returns:
            Columns ``epoch`` (from 1), ``metric``, ``value`` and ``data`` ("training" or "validation").

        Raises:
            ArgumentError: pandas is not installed.
        """
        frame: pandas.DataFrame = data_frame(self.rows(), ["epoch", "metric", "value", "data"])
        return frame

    def rows(self) -> list[tuple[int, str, float, str]]:
        """The history as rows (epoch, metric, value, data)."""
        rows = []
        for name, values in self.history.items():
            data = "validation" if name.startswith("val_") else "training"
            metric = name.removeprefix("val_")
            rows += [(epoch, metric, value, data) for epoch, value in enumerate(values, 1)]
        return rows

    def plot(self) -> matplotlib.figure.Figure:
        """Plot the history: one panel for each metric, with training and validation.

        Raises:
            ArgumentError: matplotlib is not installed.
        """
        metrics = [name for name in self.history if not name.startswith("val_")]
        drawn: matplotlib.figure.Figure = figure(4 * len(metrics), 3)
        panels = drawn.subplots(1, len(metrics), squeeze=False)[0]
        for panel, metric in zip(panels, metrics, strict=True):
            for name, label in ((metric, "training"), (f"val_{metric}", "validation")):
                values = self.history.get(name, [])
                if values:
                    panel.plot(range(1, len(values) + 1), values, marker="o", label=label)
            panel.set(xlabel="epoch", title=metric)
            panel.legend()
        return drawn

    def __str__(self) -> str:
        epochs = max(map(len, self.history.values()), default=0)  # a callback may have stopped it early
        batch = self.params["batch_size"]
        lines = [
            f"Trained on {_count(self.params['workers'], 'worker')}, {_count(epochs, 'epoch')}, "
            f"{'batches of the data function' if batch is None else f'global batch {batch}'}, "
            f"seed {self.params['seed']}"
        ]
        lines += [f"  {name}: {value:.4f}" for name, value in self.metrics.items()]
        if self.run_dir is not None:
            lines.append(f"Logs: {self.run_dir}/logs")
        return "\n".join(lines)


def save_training(training: Training, run_dir: Path) -> None:
    """Write weights, optimizer state and history of a trained model into ``run_dir`` (on the chief)."""
    weights, optimizer = values_of(training.model)
    state: dict[str, Any] = {f"weight_{i}": value for i, value in enumerate(weights)}
    state |= {f"optimizer_{i}": value for i, value in enumerate(optimizer)}
    np.savez(run_dir / _WEIGHTS, **state)
    names = ("history", "inputs", "seconds", "communication")
    summary = {name: getattr(training, name) for name in names}
    (run_dir / _SUMMARY).write_text(json.dumps(summary))


def load_history(run_dir: Path) -> dict[str, list[float]]:
    """Read the history that ``save_training`` wrote."""
    history: dict[str, list[float]] = _summary(run_dir)["history"]
    return history


def load_communication(run_dir: Path) -> str:
    """Read what carried the gradients, as ``save_training`` wrote it."""
    return str(_summary(run_dir)["communication"])


def _summary(run_dir: Path) -> dict[str, Any]:
    with open_own(run_dir / _SUMMARY) as file:
        summary: dict[str, Any] = json.load(file)
    return summary


def load_model(build: Callable[[], keras.Model], run_dir: Path) -> keras.Model:
    """The trained model: the user's function builds it again, with the state that ``save_training`` wrote.

    Saving the model itself would fail for models with parts that Keras cannot serialize, such as R functions.
    """
    model = build()
    with open_own(run_dir / _WEIGHTS) as file, np.load(file, allow_pickle=False) as state:
        weights = sum(name.startswith("weight_") for name in state.files)
        optimizer = len(state.files) - weights
        set_values(
            model,
            [state[f"weight_{i}"] for i in range(weights)],
            [state[f"optimizer_{i}"] for i in range(optimizer)],
            _summary(run_dir)["inputs"],
        )
    return model


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
