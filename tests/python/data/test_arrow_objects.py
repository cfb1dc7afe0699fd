"""Tables and columns of other libraries, which come by Arrow's C interface."""

import sys
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from refusals import refusal

from tfdistr.data.source import make_source
from tfdistr.errors import ArgumentError

TABLE = pa.table({"a": [1, 2, 3], "b": [0.5, 1.0, 2.0]})
MATRIX = np.array([[1, 0.5], [2, 1], [3, 2]])


class Stream:
    """What another library gives: it can be read once."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        value, self._value = self._value, None
        assert value is not None, "it was read twice"
        return value.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    "x",
    [
        TABLE, TABLE.to_batches()[0], pa.concat_tables([TABLE[:1], TABLE[1:]]), Stream(TABLE),
        pa.RecordBatchReader.from_batches(TABLE.schema, TABLE.to_batches(1)), pl.from_arrow(TABLE),
    ],
    ids=lambda x: type(x).__name__,
)  # fmt: skip
def test_a_table_is_a_data_frame(x):
    source = make_source(x, Stream(TABLE["a"]))
    assert (source.parts[0].tolist(), source.parts[1].tolist()) == (MATRIX.tolist(), [1, 2, 3])
    assert source.columns == ("a", "b")


def test_columns_of_polars():
    x = pl.DataFrame(
        {
            "text": ["x", "é", ""],
            "category": pl.Series(["u", "v", "u"], dtype=pl.Categorical),
            "level": pl.Series(["u", "v", "u"], dtype=pl.Enum(["v", "u"])),
            "list": [[1, 2], [3, 4], [5, 6]],
            "logical": [True, False, True],
        }
    )
    found = make_source(x).parts[0]
    assert {name: part.tolist() for name, part in found.items()} == x.to_dict(as_series=False)


@pytest.mark.parametrize(
    "y",
    [
        TABLE["a"], TABLE["a"].chunk(0), pl.Series([1, 2, 3]), pa.array(["1", "2", "3"]).dictionary_encode(),
    ],
    ids=lambda y: type(y).__name__,
)  # fmt: skip
def test_a_column_is_an_array(y):
    assert [int(value) for value in make_source(MATRIX, y).parts[1]] == [1, 2, 3]


def error_of(x: Any, y: Any = None) -> list[str]:
    return refusal(ArgumentError, make_source, x, y)


def test_missing_values():
    rule = "A column must have a value in each row."
    fix = "Fix: Fill in or drop what is missing: pyarrow.compute.fill_null(column, 0), for example."
    x = pl.DataFrame({"a": [1, None, 3]})
    received = "Received: no value of column 'a' in row 1 of `x`"
    assert error_of(x) == [rule, received, fix]
    lists = pa.FixedSizeListArray.from_arrays(pa.array([1, 2, 3, None]), 2)
    assert error_of(pa.table({"a": lists})) == [rule, received, fix]
    assert error_of(MATRIX, x["a"]) == [rule, "Received: no value in row 1 of `y`", fix]


def test_lists_of_several_sizes():
    rule, received, _ = error_of(MATRIX, pl.Series([[1], [2, 3], [1]]))
    assert rule == "All lists of a column must have one size."
    assert received == "Received: row 1 of `y`: a list of 2, where the first row has one of 1"


def test_types_that_tensorflow_has_not():
    x = pl.DataFrame({"a": pl.Series([1, 2, 3]).cast(pl.Datetime)})
    assert "Received: column 'a' of `x`: timestamp[us]" in error_of(x)


def test_an_object_that_pyarrow_cannot_read():
    class Broken:
        def __arrow_c_stream__(self, requested_schema=None):
            raise ValueError("the connection is closed")

    rule, received, fix = error_of(Broken())
    assert rule == "`x` must be a table or a column that is readable through Arrow's C interface."
    assert received.endswith("Broken: the connection is closed")
    assert fix == "Fix: Pass a stream that was not read before, or convert it to a data frame or arrays."


def test_without_pyarrow(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    rule, _, fix = error_of(Stream(TABLE))
    assert rule == "`x` of class test_arrow_objects.Stream needs pyarrow."
    assert fix == "Fix: pip install 'tfdistr[parquet]'"
