"""What the R package says of values that Python can't hold."""

import sys

import pytest

from tfdistr.errors import ArgumentError
from tfdistr.r.values import check_pyarrow, refuse_class


@pytest.mark.parametrize(
    ("classes", "fix"),
    [
        (["dgCMatrix", "CsparseMatrix", "Matrix"],
         "as.matrix(), or pass a function that returns batches as matrices"),
        (["integer64"], "as.numeric(), which is exact up to 2^53"),
        (["Date", "oldClass"], "as.numeric(), which gives days since 1970"),
        (["POSIXct", "POSIXt"], "as.numeric(as.POSIXct()), which gives seconds since 1970"),
        (["difftime"], 'as.numeric(units = "secs")'),
        (["AsIs"], "unclass()"),
        (["mts", "ts", "matrix"], "unclass()"),
        (["table"], "unclass()"),
        (["stars"], "as.numeric() or as.character(), for example"),
    ],
)  # fmt: skip
def test_an_object_of_a_class_is_refused_with_its_conversion(classes, fix):
    with pytest.raises(ArgumentError) as caught:
        refuse_class("x$a", classes)
    assert caught.value.message == "`x$a` must hold numbers, logical values, text or a factor."
    assert caught.value.received == f"an object of class {classes[0]}"
    assert caught.value.fix == f"Convert it with {fix}."


def test_objects_of_arrow_need_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ArgumentError) as caught:
        check_pyarrow("x$a", "Table")
    assert caught.value.received == "no pyarrow"
