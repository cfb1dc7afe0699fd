"""Results and errors for an R session, as the parts of its own objects."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tfdistr.errors import JobStoppedError, TfdistrError, WorkerFailedError
from tfdistr.jobs.outcome import epochs_of, rows_of
from tfdistr.jobs.result import FitResult
from tfdistr.r.messages import in_r
from tfdistr.r.values import for_r, number_in_r
from tfdistr.utils.metric_values import columns_of

_ROW = ("index", "host", "pid", "status", "seconds", "log")
#: With parameter servers, some rows are no workers.
_ROW_WITH_TASK = (*_ROW, "task", "local_steps", "dropped")
# The numbers of first epochs in errors: of two runs, or of workers.
_FIRST_EPOCHS = re.compile(r"\binitial_epoch(?:=\d+(?:, where the run has \d+)?|: [^;]*)")
_EPOCH = re.compile(r"(?<==)\d+|(?<=has )\d+|\d+(?= on )")
# The numbers of rows of files and tables in errors.
_ROW_NUMBER = re.compile(r"(?<=\bin row )\d+(?= of )|(?<=\bfrom row )\d+(?= on\b)")
_FAILURE = ("worker", "host", "pid", "exit_code", "traceback", "log")

Columns = dict[str, list[Any]]


def fit_for_r(result: FitResult) -> dict[str, object]:
    """Return the parts of a result for R, beside its model: attributes, texts, and columns of data frames."""
    summary = result.summary()
    lines = [line.rpartition(": ") for line in str(result).splitlines()]
    words = [f"{name}: {number_in_r(end)}" if name.startswith("  ") else name + sign + end
             for name, sign, end in lines]  # fmt: skip
    rows = [dict(zip(("epoch", "metric", "value", "data"), row, strict=True)) for row in rows_of(result)]
    return {
        "history": result.history,
        "metrics": result.metrics,
        # R counts epochs from 1.
        "params": for_r({**result.params, "initial_epoch": result.params["initial_epoch"] + 1}),
        "workers": worker_columns(result.workers),
        "run_dir": result.run_dir,
        "examples": result._form.examples,
        "text": words,
        "long": _columns(rows, ("epoch", "metric", "value", "data")),
        "wide": _by_epoch(result),
        "times": _columns(summary.times, list(dict.fromkeys(name for row in summary.times for name in row))),
        "time_lines": list(map(in_r, summary.table_lines())),
        "bottleneck": None if summary.bottleneck is None else in_r(summary.bottleneck),
    }


def levels_of_outputs(result: FitResult, outputs: object) -> object:
    """Return the names of the classes of each output of a model, in the structure of the outputs."""
    levels = {path: list(names) for path, names in result._form.levels.items()}
    if isinstance(outputs, Mapping):
        return {name: levels.get(f"[{name!r}]") for name in outputs}
    if isinstance(outputs, list | tuple):
        names = result.model.output_names
        return [levels.get(f"[{at}]", levels.get(f"[{names[at]!r}]")) for at in range(len(outputs))]
    return levels.get("") or (next(iter(levels.values())) if len(levels) == 1 else None)


def _numbers_in_r(text: str) -> str:
    """Return a text of an error with the numbers of rows and of first epochs as R counts."""
    text = _ROW_NUMBER.sub(lambda row: str(int(row[0]) + 1), text)
    return _FIRST_EPOCHS.sub(lambda found: _EPOCH.sub(lambda epoch: str(int(epoch[0]) + 1), found[0]), text)


def worker_columns(workers: Sequence[object]) -> Columns | None:
    """Return the states of workers as columns of a data frame; None without workers."""
    rows = [row if isinstance(row, Mapping) else vars(row) for row in workers]
    with_task = any(row.get("task") is not None for row in rows)
    return _columns(rows, _ROW_WITH_TASK if with_task else _ROW) if rows else None


def error_for_r(error: TfdistrError) -> dict[str, object]:
    """Return the parts of an R condition: the text of an error in R syntax, and its fields."""
    parts: dict[str, Any] = {"kind": error.kind, "message": in_r(error.message)}
    for name in ("received", "fix"):
        text = getattr(error, name)
        parts[name] = None if text is None else in_r(_numbers_in_r(str(text)))
    if isinstance(error, JobStoppedError):
        parts["status"] = error.code
    if isinstance(error, WorkerFailedError):
        parts["message"] = error._in_short or error.message  # the worker's own words
        parts |= {name: getattr(error, name) for name in _FAILURE}
        parts["workers"] = worker_columns(error.workers)
    return parts


def _columns(rows: Sequence[Mapping[str, object]], names: Sequence[str]) -> Columns:
    return {name: [row.get(name) for row in rows] for name in names}


def _by_epoch(result: FitResult) -> Columns:
    """Return the history with a row for each epoch; None where a metric has no value."""
    epochs = epochs_of(result)
    numbers = sorted(set().union(*epochs.values()))
    columns: Columns = {"epoch": numbers}
    for name, values in columns_of(result.history).items():
        known = dict(zip(epochs[name], values, strict=True))
        columns[name] = [known.get(number) for number in numbers]
    return columns
