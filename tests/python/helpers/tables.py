"""Parquet files of a few columns, and the errors of data sets in files."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from refusals import refusal

import tfdistr
from tfdistr.errors import ArgumentError


def write(path: Path, **of_columns: Any) -> str:
    pq.write_table(pa.table(of_columns), path, row_group_size=2)
    return str(path)


def refused(**arguments: Any) -> list[str]:
    return refusal(ArgumentError, tfdistr.load_dataset, **{"name": "parquet"} | arguments)
