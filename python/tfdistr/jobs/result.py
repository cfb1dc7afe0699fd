"""The result of ``distributed_fit()``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import attrs

from tfdistr.jobs.caller import Caller
from tfdistr.jobs.fit_summary import FitSummary, bottleneck_of, time_line, times_of
from tfdistr.jobs.outcome import Outcome, epochs_of, rows_of
from tfdistr.utils.describe import number_of
from tfdistr.utils.metric_values import columns_of
from tfdistr.utils.packages import data_frame, figure

if TYPE_CHECKING:
    import keras
    import matplotlib.figure
    import pandas

    from tfdistr.clusters.cluster import Cluster


class FitResult(Outcome):
    """The result of a training job.

    Attributes:
        history: Metric values by name, one for each epoch, as in Keras's history; a list where a metric has
            several values. See ``to_frame()``.
        metrics: The metrics after the last epoch.
        params: The numbers of the job: global batch size (None if ``x`` gave batches), epochs, steps, seed,
            number of workers. ``communication`` is what really carried the gradients between the workers:
            "mpi", "ring" or "nccl"; "none" if one worker trained, or if the strategy's workers exchange no
            gradients.
            If ``x`` gave batches, ``batches_of`` is "data set", "generator" or "data function".
            With parameter servers, ``passes`` is how often the workers together have used each example; None
            if this is not known.
            ``differences`` are sentences that say why the result is not that of one worker, as far as
            tfdistr knows; none if it is. ``xla`` is what XLA has compiled of the steps: "whole steps",
            "between exchanges" (on several workers or devices) or "nothing".
            If a model was given, ``model_copy`` says what of its copy was compared: "fingerprint only"
            (attributes and variables), or "fingerprint, outputs and gradients".
        workers: For each worker a dictionary with index, host, pid, status, seconds and log (the path of its
            output; None if it was this process). A worker that has trained also has times, its seconds since
            its last start: computing, waiting_for_peers, exchanging, waiting_for_data, checkpoints,
            callbacks, and start (until the first step is done). A part that cannot be measured is not there:
            its time is in computing, and that of waiting_for_peers with the ring in exchanging.
        run_dir: Folder with the logs, or the URL of the store; None if the job ran in this process without
            a store.

    A result can be pickled. It is then read, with its model, in any other session.
    """

    @classmethod
    def _of(cls, outcome: Outcome) -> FitResult:
        """Return the result with this outcome."""
        values = attrs.asdict(outcome, recurse=False)
        return cls(**{name.lstrip("_"): value for name, value in values.items()})

    @property
    def model(self) -> keras.Model:
        """The trained model.

        It is in this process, and is built at the first use.
        """
        return self._trained.model

    def evaluate(
        self,
        x: object,
        y: object = None,
        *,
        sample_weight: object = None,
        batch_size: int | None = None,
        steps: int | None = None,
        cluster: Cluster | None = None,
    ) -> dict[str, float]:
        """Evaluate a trained model.

        This computes the loss and the metrics of the model for data. With ``cluster``, each worker computes
        its share of each batch, and the values are those of one worker.

        Args:
            x: Inputs, in one of the forms that ``distributed_fit()`` takes.
            y: Targets, if ``x`` is arrays.
            sample_weight: Weight of each example, if ``x`` is arrays.
            batch_size: Examples in a global batch; None means 32, or the batches that ``x`` gives.
            steps: Number of batches; by default all.
            cluster: Where to compute: ``local_cluster(workers=4)``, ``ssh_cluster(["a", "b"])``,
                ``slurm_cluster(nodes=2)`` or ``ray_cluster(workers=2)``; by default this process, or the
                cluster that it has joined. After a fit with ``virtual_workers``, where TensorFlow already
                runs here with several threads, it is one worker on this machine.

        Returns:
            The value of each metric by its name.

        Raises:
            ArgumentError: The data does not fit the model, or has no targets.
            ClusterConfigError: TF_CONFIG is not valid.
            ClusterStartError: The workers could not be started or did not find each other.
            DataShardError: The data cannot be split over the workers.
            WorkerFailedError: A worker failed; the others were stopped.

        Example:
            >>> fit.evaluate(tfdistr.load_dataset("digits", "test"))["accuracy"] > 0.5
            True
        """
        from tfdistr.jobs.inference import evaluate

        return evaluate(
            _silent_caller(), self, x=x, y=y, sample_weight=sample_weight, batch_size=batch_size, steps=steps,
            cluster=cluster,
        )  # fmt: skip

    def predict(
        self,
        x: object,
        *,
        batch_size: int | None = None,
        steps: int | None = None,
        cluster: Cluster | None = None,
        output: str | os.PathLike[str] | None = None,
        output_format: str = "npy",
    ) -> Any:
        """Predict with a trained model.

        This computes the outputs of the model: of each example once, in the order of the data. Each worker
        computes whole batches, one after the other, so the outputs are those of one worker.

        Args:
            x: Inputs, in one of the forms that ``distributed_fit()`` takes. Targets are ignored.
            batch_size: Examples in a batch; None means 32, or the batches that ``x`` gives.
            steps: Number of batches; by default all.
            cluster: Where to compute: ``local_cluster(workers=4)``, ``ssh_cluster(["a", "b"])``,
                ``slurm_cluster(nodes=2)`` or ``ray_cluster(workers=2)``; by default this process.
            output: A new or empty folder. The outputs are written there, in files of about 64 MiB each, and
                are never in memory together.
            output_format: Format of these files: "npy" (``numpy.load()`` reads them), or "parquet" (needs
                pyarrow): a row for each example, a column for each output.

        Returns:
            The outputs, in the structure that the model returns; with ``output``, the paths of the files in
            the order of the data (with .npy files and several outputs, a list of paths for each output).

        Raises:
            ArgumentError: The data does not fit the model, or pyarrow is not installed.
            ClusterStartError: The workers could not be started or did not find each other.
            DataShardError: The data cannot be split over the workers.
            WorkerFailedError: A worker failed; the others were stopped.

        Example:
            >>> fit.predict(tfdistr.load_dataset("digits", "test")).shape
            (360, 10)
        """
        from tfdistr.jobs.inference import predict

        return predict(
            _silent_caller(), self, x=x, batch_size=batch_size, steps=steps, cluster=cluster, output=output,
            output_format=output_format,
        )  # fmt: skip

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save a result: its numbers, and the model with the state of its optimizer.

        Args:
            path: The file. A file of this name is replaced when the new one is whole.

        Raises:
            ArgumentError: The function that makes the model cannot be sent to other processes.
            TfdistrError: The file cannot be written.

        Example:
            >>> fit.save("fit")
            >>> tfdistr.FitResult.load("fit").metrics == fit.metrics
            True
        """
        from tfdistr.jobs.saved_result import save

        save(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> FitResult:
        """Load a result that ``save()`` has written. Only load what you trust: a pickle may run any code.

        Args:
            path: The file.

        Returns:
            The result; its model is built at the first use.

        Raises:
            ArgumentError: The file cannot be read, is not whole, or is of another version.
        """
        from tfdistr.jobs.saved_result import load_result

        return load_result(path)

    def save_model(self, path: str | os.PathLike[str]) -> None:
        """Save the trained model alone, as Keras does.

        Args:
            path: The file, such as "model.keras".

        Raises:
            ValueError: Keras cannot save the model, or not under this name.

        Example:
            >>> fit.save_model("model.keras")
            >>> len(keras.saving.load_model("model.keras").weights) == len(fit.model.weights)
            True
        """
        self.model.save(path)

    def __reduce__(self) -> Any:
        from tfdistr.jobs.saved_result import from_bytes, to_bytes

        return from_bytes, (to_bytes(self),)

    def to_frame(self) -> pandas.DataFrame:
        """Give the history as a data frame: one row for each epoch and metric.

        Returns:
            Columns ``epoch`` (from 1), ``metric``, ``value`` and ``data`` ("training" or "validation").

        Raises:
            ArgumentError: pandas is not installed.
        """
        frame: pandas.DataFrame = data_frame(rows_of(self), ["epoch", "metric", "value", "data"])
        return frame

    def summary(self) -> FitSummary:
        """Summarize a result: what was trained, where the time of each worker went, and the bottleneck.

        The shares are those of the worker's own time.

        Returns:
            An object that ``print()`` shows, with ``times`` and ``bottleneck``. Its ``plot()`` draws a bar
            for each worker, with its seconds by part.

        Example:
            >>> fit.summary().bottleneck
            'Bottleneck: none. The worker computed for 93 % of the time.'
        """
        times = times_of(self.workers)
        checked = self.params.get("model_copy")
        lines = [self._text(), *([] if checked is None else [f"Copy of the model: {checked} compared"])]
        return FitSummary("\n".join(lines), times, bottleneck_of(times))

    def plot(self) -> matplotlib.figure.Figure:
        """Plot the history: one panel for each metric, with training and validation.

        Raises:
            ArgumentError: matplotlib is not installed.
        """
        columns = columns_of(self.history)
        metrics = [name for name in columns if not name.startswith("val_")]
        drawn: matplotlib.figure.Figure = figure(4 * len(metrics), 3)
        epochs = epochs_of(self)
        panels = drawn.subplots(1, len(metrics), squeeze=False)[0]
        for panel, metric in zip(panels, metrics, strict=True):
            for name, label in ((metric, "training"), (f"val_{metric}", "validation")):
                values = columns.get(name, [])
                if values:
                    panel.plot(epochs[name], values, marker="o", label=label)
            panel.set(xlabel="epoch", title=metric)
            panel.legend()
        return drawn

    def __str__(self) -> str:
        line = time_line(times_of(self.workers))
        return self._text() if line is None else f"{self._text()}\n{line}"

    def _text(self) -> str:
        epochs = max(map(len, self.history.values()), default=0)  # a callback may have stopped it early
        batch, passes = self.params["batch_size"], self.params.get("passes")
        size = f"batches of the {self.params['batches_of']}" if batch is None else f"global batch {batch}"
        lines = [
            f"Trained on {number_of(self.params['workers'], 'worker')}, {number_of(epochs, 'epoch')}, "
            f"{size}, seed {self.params['seed']}"
        ]
        if passes is not None:
            lines.append(f"Passes over the data: {passes:g}, made by all workers together")
        last = {name: values[-1] for name, values in columns_of(self.history).items()}
        lines += [f"  {name}: {value:.4f}" for name, value in last.items()]
        if self.run_dir is not None:
            has_logs = any(row.get("log") for row in self.workers)
            lines.append(f"Logs: {self.run_dir}/logs" if has_logs else f"Run: {self.run_dir}")
        return "\n".join(lines)


def _silent_caller() -> Caller:
    """A caller that shows warnings, and what workers print if the cluster says so."""
    from tfdistr.jobs.progress import make_display

    return Caller(make_display(0).event)
