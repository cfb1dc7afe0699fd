"""Values that cross between R and Python, in the process that has both; see test_types.py."""

import traceback
from pathlib import Path
from typing import Any

import bridge
import in_python
import numpy as np

from tfdistr.data.source import as_arrays as make_arrays

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


def installed(package: str) -> Any:
    """Whether R has a package."""
    return bridge.from_r(f"requireNamespace({package!r}, quietly = TRUE)")


_ASKED: dict[str, Any] = {"of_r": of_r, "installed": installed}


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


# --- Values as JSON


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    return value


def _in_r(function: str, *values: Any) -> Any:
    """What a function of types_in_r.R gives for these values."""
    bridge.r("given <- lapply(iterate(given), py_to_r)", given=list(values))
    return _plain(bridge.from_r(f"do.call({function}, given)"))


def _plain(observed: Any) -> Any:
    """An observation of R, with errors as in_python.py describes them."""
    if isinstance(observed, dict) and set(observed) == {"python"}:
        return {"error": {"language": "python", **observed["python"]}}
    if isinstance(observed, dict) and set(observed) == {"error"}:
        return {"error": {"language": "r", **in_python.of_r(observed)["error"]}}
    return observed
