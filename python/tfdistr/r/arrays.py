"""The errors for R values that cannot become Python arrays of the same values.

R checks its values, because only R knows their types. The rules and the messages are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tfdistr.errors import ArgumentError
from tfdistr.utils.packages import parquet

#: The fix for objects of a class.
_CONVERSIONS = {
    "Matrix": "as.matrix(), or pass a function that returns batches as matrices",
    "integer64": "as.numeric(), which is exact up to 2^53",
    "Date": "as.numeric(), which gives days since 1970",
    "POSIXt": "as.numeric(as.POSIXct()), which gives seconds since 1970",
    "difftime": 'as.numeric(units = "secs")',
    "AsIs": "unclass()",
    "Dataset": 'arrow::as_arrow_table(), or pass load_dataset("parquet", files = dataset$files)',
    "arrow_dplyr_query": "dplyr::compute()",
}


def check_pyarrow(name: str, of: str) -> None:
    """Check that Arrow objects can be read.

    Args:
        name: The name of the part for the user.
        of: The class of the object.

    Raises:
        ArgumentError: pyarrow is not installed.
    """
    parquet(f"`{name}` of class {of}")


def refuse_class(name: str, classes: Sequence[str]) -> NoReturn:
    """Refuse an R object that is no array.

    Args:
        name: The name of the part for the user.
        classes: The classes of the object, and those that it extends.

    Raises:
        ArgumentError: Always.
    """
    known = next((fix for of, fix in _CONVERSIONS.items() if of in classes), None)
    raise ArgumentError(
        f"`{name}` must hold numbers, logical values, text or a factor.",
        received=f"an object of class {classes[0]}",
        fix=f"Convert it with {known or 'as.numeric() or as.character(), for example'}.",
    )


def refuse_missing(name: str, kind: str, missing: int, length: int) -> NoReturn:
    """Refuse missing values, which would become ordinary values. Doubles have NaN for them.

    Args:
        name: The name of the part for the user.
        kind: Their type in R.
        missing: The number of missing values.
        length: The number of all values.

    Raises:
        ArgumentError: Always.
    """
    raise ArgumentError(
        f"`{name}` must not have missing values, which {kind} can't hold in Python.",
        received=f"{missing} missing of {length}",
        fix="Remove or replace them first.",
    )


def refuse_encoding(name: str, shown: str) -> NoReturn:
    """Refuse text with bytes that are not text in its encoding.

    Args:
        name: The name of the part for the user.
        shown: The first such text, as R prints it.

    Raises:
        ArgumentError: Always.
    """
    raise ArgumentError(
        f"`{name}` must hold text whose encoding R knows.",
        received=f"{shown}, whose bytes are not text in its encoding",
        fix='Read it with the right encoding, or convert it by iconv(x, "latin1", "UTF-8"), for example.',
    )
