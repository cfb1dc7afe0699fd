"""Values that R and Python do not both have: reticulate would change them, or they are refused."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import attrs
import numpy as np

from tfdistr.errors import ArgumentError
from tfdistr.r.messages import in_r
from tfdistr.utils.packages import parquet

#: The whole numbers that a double holds exactly are those up to here.
_LARGEST_DOUBLE = 2**53
#: R's type integer has 32 bits, of which the smallest number stands for NA.
_LARGEST_INTEGER = 2**31 - 1
_NOT_FINITE = {"nan": "NaN", "inf": "Inf", "-inf": "-Inf"}


def for_r(value: object) -> object:
    """Return a value that reticulate converts to the same R value.

    Whole numbers that R's integers do not have become floats, and bytes among text become text. Lists, tuples
    and dictionaries are converted part by part. All other values stay as they are.

    Raises:
        ArgumentError: R has no such number.

    Example:
        >>> for_r({"seed": 2**32 - 1, "epochs": 2})
        {'seed': 4294967295.0, 'epochs': 2}
    """
    if isinstance(value, Mapping):
        return {key: for_r(part) for key, part in value.items()}
    if isinstance(value, tuple):
        return tuple(map(for_r, value))
    if isinstance(value, list):
        return list(map(for_r, value))
    if isinstance(value, np.ndarray):
        return _array(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        _check_exact(int(value), int(value))
        return int(value) if abs(int(value)) <= _LARGEST_INTEGER else float(value)
    return value


def describe_for_r(described: Any) -> dict[str, object]:
    """Return the plain values of a cluster, a strategy or options, and the text that shows them.

    Example:
        >>> from tfdistr import on_failure
        >>> describe_for_r(on_failure(max_restarts=3))["values"]["max_restarts"]
        3
    """
    names = [field.alias for field in attrs.fields(type(described))]
    names += [name for name in ("workers", "fewest") if hasattr(described, name) and name not in names]
    values = {name: for_r(_plain(getattr(described, name))) for name in names if hasattr(described, name)}
    return {"values": values, "text": in_r(str(described)).splitlines()}


def _plain(value: object) -> Any:
    """Return a value without the classes that JSON does not have; None for an object."""
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value if isinstance(value, bool | int | float | str | os.PathLike) else None


def number_in_r(text: str) -> str:
    """Return a formatted number in R syntax, such as "NaN" for "nan"."""
    return _NOT_FINITE.get(text, text)


def seed_of_r(seed: int) -> int:
    """Return a seed in R's form: R seeds are signed, and have no -2**31.

    Example:
        >>> seed_of_r(2**32 - 1), seed_of_r(2**31)
        (-1, 0)
    """
    signed = seed - 2**32 if seed > _LARGEST_INTEGER else seed
    return 0 if signed < -_LARGEST_INTEGER else signed


def _array(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind in "iu" and array.size:
        least, most = int(array.min()), int(array.max())
        _check_exact(least, most)
        # reticulate makes doubles of larger types itself.
        return array.astype(np.float64) if array.dtype == np.int32 and least < -_LARGEST_INTEGER else array
    if array.dtype.kind == "S" or (array.dtype == object and any(isinstance(v, bytes) for v in array.flat)):
        return _text(array)
    return array


def _text(array: np.ndarray) -> np.ndarray:
    """Convert bytes to text; unchanged if some are no text."""
    made = array.astype(object)
    try:
        made.reshape(-1)[:] = [v.decode() if isinstance(v, bytes) else v for v in made.flat]
    except UnicodeDecodeError:
        return array
    return made


def _check_exact(least: int, most: int) -> None:
    if max(-least, most) > _LARGEST_DOUBLE:
        raise ArgumentError(
            "R cannot represent a whole number of the result above 2^53.",
            received=str(least if -least > most else most),
            fix="Read the result in Python, or make the model return smaller numbers or text.",
        )


#: The fix for objects of a class.
_CONVERSIONS = {
    "Matrix": "as.matrix(), or pass a function that returns batches as matrices",
    "integer64": "as.numeric(), which is exact up to 2^53",
    "Date": "as.numeric(), which gives days since 1970",
    "POSIXt": "as.numeric(as.POSIXct()), which gives seconds since 1970",
    "difftime": 'as.numeric(units = "secs")',
    "AsIs": "unclass()",
    "ts": "unclass()",
    "table": "unclass()",
    "data.frame": "tidyr::unpack(), which makes columns of it",
    "list": "tidyr::unnest_wider() or unlist(), for example",
    "raw": "as.integer(), and dim() for an array",
    "complex": "Re() or Mod()",
    "Dataset": 'arrow::as_arrow_table(), or pass load_dataset("parquet", files = dataset$files)',
    "arrow_dplyr_query": "dplyr::compute()",
}


def check_pyarrow(name: str, of: str) -> None:
    """Check that Arrow objects can be read."""
    parquet(f"`{name}` of class {of}")


def refuse_class(name: str, classes: Sequence[str]) -> NoReturn:
    """Refuse an R object that is no array; ``classes`` are its own and those that it extends."""
    known = next((fix for of, fix in _CONVERSIONS.items() if of in classes), None)
    raise ArgumentError(
        f"`{name}` must hold numbers, logical values, text or a factor.",
        received=f"an object of class {classes[0]}",
        fix=f"Convert it with {known or 'as.numeric() or as.character(), for example'}.",
    )


def refuse_missing(name: str, missing: int, length: int) -> NoReturn:
    """Refuse missing values, which would become ordinary values. Doubles have NaN for them."""
    raise ArgumentError(
        f"`{name}` must not have missing values.",
        received=f"{missing} missing of {length}",
        fix="Remove these rows, or replace the values: weights by 0, targets by NaN for a loss that leaves "
        "them out.",
    )


def refuse_handle(name: str, of: str) -> NoReturn:
    """Refuse a connection or an external pointer in a function for workers."""
    raise ArgumentError(
        f"`{name}`, which a function for the workers uses, belongs to this R process.",
        received=f"an object of class {of}",
        fix="Create it inside of the function: each worker then has its own.",
    )


def refuse_encoding(name: str, shown: str) -> NoReturn:
    """Refuse text with bytes that are not text in its encoding."""
    raise ArgumentError(
        f"`{name}` must hold text whose encoding R knows.",
        received=f"{shown}, whose bytes are not text in its encoding",
        fix='Read it with the right encoding, or convert it by iconv(x, "latin1", "UTF-8"), for example.',
    )


# What functions have not as an argument, but as a part of one, or by another name.
_ELSEWHERE = {
    "workers": "cluster=local_cluster(workers=2)",
    "communication": "strategy=multi_worker_mirrored(communication='ring')",
    "devices": "strategy=mirrored(devices=...)",
    "max_restarts": "failures=on_failure(max_restarts=3)",
    "step_timeout": "failures=on_failure(step_timeout=600)",
    "validation_data": "validation_split=0.2",
    "weights": "sample_weight=weights",
}


def refuse_unknown(function: str, name: str, known: Sequence[str]) -> NoReturn:
    """Refuse an argument that an R function has caught by its dots; ``known`` are those that it has."""
    elsewhere = _ELSEWHERE.get(name, "")
    if elsewhere.partition("=")[0] in known:
        raise ArgumentError(
            f"{function}() has no argument `{name}`.", received=name, fix=f"Pass {elsewhere}."
        )
    longer = [one for one in known if one.startswith(name)]
    near = longer or difflib.get_close_matches(name, known, n=1)
    raise ArgumentError(
        f"{function}() has no argument `{name}`.",
        received=name,
        fix=f"Write {near[0]}." if near else f"Correct the name. Its arguments are {', '.join(known)}.",
    )
