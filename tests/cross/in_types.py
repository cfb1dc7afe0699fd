"""Values that cross between R and Python, in the process that has both; see test_types.py."""

from __future__ import annotations

import json
import traceback
from pathlib import Path
from typing import Any

import bridge
import in_python
import numpy as np

import tfdistr
from tfdistr.data.source import as_arrays as make_arrays
from tfdistr.data.source import make_source
from tfdistr.jobs import run

HERE = Path(__file__).parent
_loaded: list[bool] = []


def answer(request: dict[str, Any]) -> Any:
    """The answer to a request: its name, and what it needs."""
    if not _loaded:
        bridge.r("in_types <- import('in_types', convert = FALSE)")
        bridge.r(f"source({str(HERE / 'types_in_r.R')!r})")
        _loaded.append(True)
    try:
        return _ASKED[request["ask"]](**request["of"])
    except BaseException:
        return {"broken": traceback.format_exc()}


# --- What is asked


def of_r(code: str, targets: bool = False) -> Any:
    """What a value of R is in Python, and where it differs after it came back."""
    return _in_r("there_and_back", code, targets)


def of_python(value: Any) -> Any:
    """What a value of Python is after R has had it."""
    bridge.r("NULL", made=_made(value))
    return _plain(bridge.from_r("back_from_r(made)"))


def passed(value: Any) -> Any:
    """The arrays of an object of Python: as it is, and through R."""
    made = _made(value)
    bridge.r("NULL", made=made)
    return [_caught(lambda: described(as_arrays(made))), _plain(bridge.from_r("passed_on(made)"))]


def batches(r: dict[str, str], python: dict[str, Any]) -> Any:
    """The first batch of data of R, and of the same data of Python."""
    by_hand = {name: _made(value) for name, value in python.items()}
    return [
        _caught(lambda: batch(by_hand["x"], by_hand["y"], by_hand["weight"])),
        _in_r("batch_of", *r.values()),
    ]


def steps(r: dict[str, str], python: dict[str, Any]) -> Any:
    """The weights after a step with data of R, and with the same data of Python."""
    by_hand = {name: _made(value) for name, value in python.items()}

    def train() -> Any:
        fit = tfdistr.distributed_fit(
            model, by_hand["x"], by_hand["y"], sample_weight=by_hand["weight"], seed=1, batch_size=4
        )
        return described(weights(fit.model))

    return [_caught(train), _in_r("weights_after_step", *r.values())]


def options(name: str, code: str, python: Any = None) -> Any:
    """The job that an option makes: with a value of Python, and with one of R."""
    trained, run._train = run._train, _note  # type: ignore[assignment]
    try:
        observed = _in_r("job_of", name, code)
        if python is None:
            return [None, observed]
        given = {name: _made(python)}
        arguments: Any = [model, np.zeros((8, 2)), np.zeros(8)]
        return [_caught(lambda: no_job(tfdistr.distributed_fit(*arguments, **given))), observed]
    finally:
        run._train = trained


def installed(package: str) -> Any:
    """Whether R has a package."""
    return bridge.from_r(f"requireNamespace({package!r}, quietly = TRUE)")


_ASKED: dict[str, Any] = {
    asked.__name__: asked for asked in (of_r, of_python, passed, batches, steps, options, installed)
}


# --- What R calls, too


def as_arrays(value: Any) -> Any:
    """The arrays that the core makes of a value; None stays."""
    return None if value is None else make_arrays(value, "x")


def described(tree: Any) -> Any:
    """Arrays as JSON: types, shapes, and values row by row."""
    if tree is None:
        return {"none": True}
    if isinstance(tree, dict):
        return {"dict": [[name, described(part)] for name, part in tree.items()]}
    if isinstance(tree, tuple | list):
        return {"tuple": [described(part) for part in tree]}
    array = np.asarray(tree)
    values = [_shown(value) for value in array.reshape(-1).tolist()]
    kind = "text" if array.dtype.kind in "OUS" else array.dtype.name
    return {"array": {"dtype": kind, "shape": list(array.shape), "values": values}}


def batch(x: Any, y: Any, weight: Any) -> Any:
    """The first batch of four examples."""
    from tfdistr.data.order.context import WorkerContext
    from tfdistr.data.pipeline.worker_data import make_data

    source = make_source(x, y, weight)
    data = make_data(source, WorkerContext(1, 0, 4, shuffle=False), 1)
    return described(_numpy(next(iter(data.dataset))))


def model() -> Any:
    import keras

    made = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1, use_bias=False)])
    made.compile(keras.optimizers.SGD(0.125), "mse")
    return made


def weights(trained: Any) -> Any:
    return trained.get_weights()


class _Checked(Exception):
    """A job that would be trained now."""


def _note(job: Any, *arguments: Any, **named: Any) -> Any:
    params = {name: value for name, value in job.params.items() if name != "seed" or job.seed_given}
    found = {**params, "class_weight": job.class_weight, "options": job.options, **named}
    found = {name: found[name] for name in found if name != "given"}
    raise _Checked(json.dumps(found, default=repr, sort_keys=True))


def no_job(fit: Any) -> None:
    raise AssertionError(f"it was trained: {fit}")


# --- Values as JSON


def _made(value: Any) -> Any:
    """The value of Python that JSON describes."""
    match value:
        case {"none": True}:
            return None
        case {"dict": parts}:
            return {name: _made(part) for name, part in parts}
        case {"tuple": parts}:
            return tuple(map(_made, parts))
        case {"array": {"dtype": kind, "shape": shape, "values": values}}:
            made = np.empty(len(values), object)
            made[:] = [_read(value) for value in values]
            return made.astype(object if kind == "text" else kind).reshape(shape)
        case {"code": code}:
            return _evaluated(code)
        case {"value": plain}:
            return plain
    raise ValueError(f"no value: {value}")


def _evaluated(code: str) -> Any:
    import keras
    import pandas
    import tensorflow

    return eval(code, {"np": np, "pd": pandas, "tf": tensorflow, "keras": keras})


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return value


def _read(value: Any) -> Any:
    match value:
        case {"bytes": digits}:
            return bytes.fromhex(digits)
        case {"complex": [real, imaginary]}:
            return complex(real, imaginary)
    return value


def _numpy(tree: Any) -> Any:
    if isinstance(tree, tuple):
        return tuple(map(_numpy, tree))
    if isinstance(tree, dict):
        return {name: _numpy(part) for name, part in tree.items()}
    return tree.numpy()


def _caught(make: Any) -> Any:
    try:
        return make()
    except Exception as error:
        return _of_python(error)


def _of_python(error: BaseException) -> Any:
    if isinstance(error, _Checked):
        return {"job": json.loads(str(error))}
    return {"error": {"language": "python", **in_python.error(error)}}


def _in_r(function: str, *values: Any) -> Any:
    """What a function of types_in_r.R gives for these values."""
    bridge.r("given <- lapply(iterate(given), py_to_r)", given=list(values))
    return _plain(bridge.from_r(f"do.call({function}, given)"))


def _plain(observed: Any) -> Any:
    """An observation of R: errors as `_caught` gives those of Python."""
    if isinstance(observed, dict) and set(observed) == {"python"}:
        said = observed["python"]
        if said["class"] == "_Checked":
            return {"job": json.loads(said["message"])}
        return {"error": {"language": "python", **said}}
    if isinstance(observed, dict) and set(observed) == {"error"}:
        return {"error": {"language": "r", **in_python.of_r(observed)["error"]}}
    return observed
