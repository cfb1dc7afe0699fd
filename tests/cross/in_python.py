"""Rows as Python evaluates them, and what is compared of the values of both languages."""

import hashlib
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import models
import numpy as np
from kinds import KINDS

import tfdistr
from tfdistr.r.messages import in_r
from tfdistr.strategies.callbacks import runs_on_chief_only

#: The functions of R that are methods in Python: their names there, and other names of arguments in R.
METHODS = {
    "predict": ("predict", {"object": "self", "newdata": "x"}),
    "evaluate": ("evaluate", {"object": "self"}),
    "cluster_env": ("to_env", {"cluster": "self"}),
    "cluster_lines": ("lines", {"cluster": "self"}),
}


def evaluate(expression: Any) -> Any:
    """The value of an expression of a row."""
    if isinstance(expression, list):
        return [evaluate(part) for part in expression]
    if not isinstance(expression, dict):
        return expression
    match expression:
        case {"call": name}:
            return call(name, evaluate_arguments(expression.get("arguments", {})))
        case {"array": numbers, "dim": dim}:
            return np.asarray(numbers, expression.get("dtype", "float64")).reshape(dim)
        case {"named": name}:
            return getattr(models, name)
        case {"made": name}:
            return getattr(models, name)()
        case {"tuple": parts}:
            return tuple(map(evaluate, parts))
        case {"folder": name}:
            return str(Path(tempfile.gettempdir(), name))
    return evaluate_arguments(expression)


def evaluate_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: evaluate(value) for name, value in arguments.items()}


def call(name: str, arguments: Mapping[str, Any]) -> Any:
    """Call a function of tfdistr by its name in R."""
    if name in METHODS:
        method, names = METHODS[name]
        renamed = {names.get(key, key): value for key, value in arguments.items()}
        return getattr(renamed.pop("self"), method)(**renamed)
    if name == "trained_model":
        return arguments["fit"].model
    if name == "multi_worker_mirrored_strategy":
        return tfdistr.MultiWorkerMirroredStrategy(**arguments)
    return getattr(tfdistr, name)(**arguments)


# --- What is compared


def see(value: Any, what: str) -> Any:
    """The part of a value of Python that a row compares."""
    match what:
        case "json" if isinstance(value, dict):
            return list(value.values())
        case "json":
            tasks = value.tasks if hasattr(value, "tasks") else [value]
            return [task.to_json() for task in tasks]
        case "fields":
            shown = [field for field in attrs.fields(type(value)) if not field.metadata.get("hidden")]
            workers = {"workers": value.workers} if hasattr(value, "workers") else {}
            return {**{field.alias: getattr(value, field.name) for field in shown}, **workers}
        case "arrays":
            return list(value.arrays())
        case "fit":
            return fit(value, value.history, value.workers)
        case "columns" if isinstance(value, tfdistr.Diagnosis):
            return {name: value.columns()[name] for name in ("check", "status", "fix")}
        case "comparison":
            return [[row.strategy, row.workers] for row in value.rows]
        case "nothing":
            return None
    return seen_in_both(value, what)


def seen_in_both(value: Any, what: str) -> Any:
    """The part of an object that is the same object in both languages."""
    match what:
        case "batches":
            return [np.asarray(batch) for batch in value]
        case "chief_only":
            return [type(value).__name__, runs_on_chief_only(value)]
        case "layers":
            return [type(layer).__name__ for layer in value.layers]
    return value


def fit(value: Any, history: Any, workers: Any) -> dict[str, Any]:
    """What a fit has: weights, state of the optimizer, history, numbers of the job."""
    optimizer = value.model.optimizer
    numbers = {name: number for name, number in value.params.items() if name not in ("communication", "seed")}
    return {
        "weights": [array.astype("float64") for array in value.model.get_weights()],
        "optimizer": [np.asarray(variable, "float64") for variable in optimizer.variables],
        "history": history,
        "params": numbers,
        "workers": [[worker["index"], worker["status"]] for worker in workers],
    }


def plain(value: Any) -> Any:
    """A value as JSON that is the same for the same value of both languages.

    R has no scalars, so a list of one is its element. An array is its shape and its numbers, or a digest of
    its bits if it is large.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, float | int | np.number | np.bool_):
        number = value.item() if hasattr(value, "item") else value
        if isinstance(number, bool):
            return number
        return int(number) if float(number).is_integer() else number if np.isfinite(number) else str(number)
    if isinstance(value, Mapping) and not value:
        return []  # R knows no difference
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | range):
        parts = [plain(part) for part in value]
        return parts[0] if len(parts) == 1 else parts
    if hasattr(value, "num_replicas_in_sync"):
        return {"class": type(value).__name__, "replicas": value.num_replicas_in_sync}
    if hasattr(value, "numpy"):  # a tensor
        return plain(np.asarray(value))
    if isinstance(value, np.ndarray):
        return _array(value)
    raise TypeError(f"nothing is known of {type(value).__name__}: name what of it is compared, by `see`")


def _array(array: np.ndarray[Any, Any]) -> Any:
    if array.dtype.kind in "OSU":
        return plain(array.tolist())
    if not array.ndim:
        return plain(array.item())
    numbers = np.ascontiguousarray(array, "float64")
    if numbers.size > 2000:
        return {"shape": list(array.shape), "sha256": hashlib.sha256(numbers.tobytes()).hexdigest()}
    return {"shape": list(array.shape), "numbers": [plain(number) for number in numbers.reshape(-1).tolist()]}


def cause(caught: BaseException | None) -> str | None:
    """The class of the error from which an error was raised."""
    found = getattr(caught, "__cause__", None)
    return None if found is None else type(found).__name__


def raised(traceback: str | None) -> str | None:
    """The message that the innermost code of a traceback raises, as it is written in Python or in R."""
    found = re.findall(r"(?:raise \w+|stop)\((.*)\)$", traceback or "", re.MULTILINE)
    return found[-1] if found else None


def error(caught: BaseException) -> dict[str, Any]:
    """What an error says, in R's words if it is one of tfdistr."""
    if not isinstance(caught, tfdistr.TfdistrError):
        return {"class": type(caught).__name__, "message": str(caught)}
    parts = [caught.message, caught.received, caught.fix]
    if isinstance(caught, tfdistr.WorkerFailedError):
        return {
            "class": type(caught).__name__, "message": caught.message.split(" of ")[0],
            "cause": cause(caught), "raised": raised(caught.traceback), "worker": caught.worker,
            "exit_code": caught.exit_code,
        }  # fmt: skip
    return {
        "class": type(caught).__name__,
        "cause": cause(caught),
        **{
            name: None if part is None else in_r(str(part))
            for name, part in zip(("message", "received", "fix"), parts, strict=True)
        },
    }


def observe(row: dict[str, Any]) -> dict[str, Any]:
    """What a row gives in Python, as JSON: a value, or an error."""
    try:
        value = evaluate({"call": row["call"], "arguments": row.get("arguments", {})})
        return {"value": plain(see(value, row.get("see", "value")))}
    except (Exception, tfdistr.JobStoppedError) as caught:
        return {"error": error(caught)}


def of_r(observed: Any) -> dict[str, Any]:
    """What R has observed, in the form of ``observe``."""
    if isinstance(observed, dict) and set(observed) == {"error"}:
        return {"error": _error_of_r(observed["error"])}
    if isinstance(observed, dict) and set(observed) == {"python"}:
        return {"error": observed["python"]}
    return {"value": observed}


def _error_of_r(error: dict[str, Any]) -> dict[str, Any]:
    """An error of R as `in_python.error` describes one of Python."""
    classes = error["classes"] if isinstance(error["classes"], list) else [error["classes"]]
    if "tfdistr_error" not in classes:
        return {"class": classes[0], "message": error["text"]}
    name = KINDS[classes[0].removeprefix("tfdistr_error_")]
    if name == "WorkerFailedError":
        known = {key: error[key] for key in ("cause", "worker", "exit_code")}
        known["raised"] = raised(error["traceback"])
        return {"class": name, "message": error["message"].split(" of ")[0], **known}
    return {"class": name, **{key: error[key] for key in ("cause", "message", "received", "fix")}}
