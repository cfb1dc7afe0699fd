"""Strategies of hypothesis: values of R, each with what Python must have.

A value of R is drawn as R code, with its form in Python by hand: see ``described`` of in_types.py.
``REFUSED`` stands for a value that Python can't hold: an error of tfdistr must say so.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

Described = dict[str, Any]

REFUSED: Described = {"refused": True}
NONE: Described = {"none": True}


@dataclass(frozen=True)
class OfR:
    """A value of R.

    Args:
        code: The R code that makes it.
        python: What it is in Python, as inputs.
        as_targets: What it is in Python, as targets; by default the same.
        package: A package that the code needs.
    """

    code: str
    python: Described
    as_targets: Described | None = None
    package: str | None = None

    def expected(self, targets: bool) -> Described:
        return self.as_targets if targets and self.as_targets is not None else self.python


# --- Arrays of R


def text_in_r(text: str) -> str:
    plain = [c if " " <= c <= "~" and c not in "\\\"'" else f"\\U{{{ord(c):x}}}" for c in text]
    return f'"{"".join(plain)}"'


def _double_in_r(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return ("-" if number < 0 else "") + "Inf" if math.isinf(number) else number.hex()


#: The values of each type of R, their code, and the code of a missing one.
characters = st.characters(codec="utf-8", exclude_characters="\0")
texts = st.text(characters, max_size=4) | st.sampled_from(["", "NA"])
TYPES: dict[str, tuple[st.SearchStrategy[Any], Any, str]] = {
    "int32": (st.integers(-(2**31) + 1, 2**31 - 1), "{}L".format, "NA_integer_"),
    "float64": (st.floats(), _double_in_r, "NA_real_"),
    "bool": (st.booleans(), lambda value: "TRUE" if value else "FALSE", "NA"),
    "text": (texts, text_in_r, "NA_character_"),
}
EMPTY = {"int32": "integer()", "float64": "double()", "bool": "logical()", "text": "character()"}
MISSING = object()


def array(kind: str, values: list[Any], shape: list[int]) -> Described:
    return {"array": {"dtype": kind, "shape": shape, "values": values}}


def _array_of_r(kind: str, values: list[Any], shape: list[int] | None) -> OfR:
    """A vector or, with a shape, an array, whose values are column by column."""
    _, in_r, na = TYPES[kind]
    code = ", ".join(na if value is MISSING else in_r(value) for value in values)
    code = f"c({code})" if values else EMPTY[kind]
    if shape is not None:
        code = f"array({code}, c({', '.join(f'{side}L' for side in shape)}))"
    if MISSING in values and kind != "float64":
        return OfR(code, REFUSED)
    by_column = np.empty(len(values), object)
    by_column[:] = [math.nan if value is MISSING else value for value in values]
    by_row = by_column.reshape(shape or [-1], order="F").reshape(-1).tolist()
    made = array(kind, by_row, [len(values)] if shape is None else shape)
    return OfR(code, made, REFUSED if MISSING in values else None)  # NA as a target; as an input it is NaN


shapes = st.lists(st.integers(0, 3), min_size=1, max_size=5)


@st.composite
def arrays_of_r(draw: st.DrawFn, kind: str, length: int | None = None, missing: bool = True) -> OfR:
    one = TYPES[kind][0]
    if missing:
        one = one | st.just(MISSING) if draw(st.booleans()) else one
    shape = None
    if length is not None:
        size = length
    elif draw(st.booleans()):
        shape = draw(shapes)
        size = math.prod(shape)
    else:
        size = draw(st.integers(0, 5))
    return _array_of_r(kind, draw(st.lists(one, min_size=size, max_size=size)), shape)


plain_arrays = st.sampled_from(sorted(TYPES)).flatmap(arrays_of_r)


@st.composite
def factors(draw: st.DrawFn, length: int | None = None) -> OfR:
    levels = draw(st.lists(texts, min_size=1, max_size=3, unique=True))
    size = draw(st.integers(0, 4)) if length is None else length
    codes = draw(st.lists(st.integers(0, len(levels) - 1) | st.none(), min_size=size, max_size=size))
    if draw(st.booleans()):
        codes = [0 if code is None else code for code in codes]
    of = ", ".join("NA" if code is None else f"{code + 1}L" for code in codes)
    names = ", ".join(map(text_in_r, levels))
    ordered = ', class = c("ordered", "factor")' if draw(st.booleans()) else ', class = "factor"'
    code = f"structure(as.integer(c({of})), levels = c({names}){ordered})"
    if None in codes:
        return OfR(code, REFUSED)
    text = array("text", [levels[number] for number in codes], [size])
    return OfR(code, text, array("int32", codes, [size]))


#: Objects of R for which Python has no array: none of them may become numbers or text without a word.
OBJECTS = [
    "as.Date('2020-02-03')", "Sys.time()", "as.POSIXct(c(0, NA), origin = '1970-01-01')",
    "as.POSIXlt(Sys.time())",
    "as.difftime(1, units = 'mins')", "as.raw(1:3)", "c(1i, 2)", "mean", "quote(a + b)", "new.env()",
    "structure(c(4.9e-324, 9.9e-324), class = 'integer64')", "I(1:3)", "table(c('a', 'b'))", "ts(1:3)",
    "numeric_version('1.2')", "y ~ x", "structure(list(a = 1), class = 'of_a_user')", "expression(a)",
    "data.frame(when = as.Date('2020-02-03'))", "I(data.frame(a = 1)$a)", "as.table(matrix(1:4, 2))",
    "{frame <- data.frame(id = 1:2); frame$parts <- list(1, 'a'); frame}",
    "{text <- 'caf\\xe9'; Encoding(text) <- 'UTF-8'; text}",
    "{text <- '\\xe9'; Encoding(text) <- 'bytes'; text}",
    "{frame <- data.frame(a = 1:2, b = 3:4); names(frame) <- c('a', 'a'); frame}",
    "list(a = 1, a = 2)", "list(a = 1, 2)", "setNames(list(1, 2), c('a', NA))", "list(1, NULL)", "list(mean)",
]  # fmt: skip
IN_PACKAGES = {
    "Matrix": ["Matrix::sparseMatrix(1:2, 2:1, x = c(1.5, 2))", "Matrix::Diagonal(3)",
               "list(Matrix::Matrix(0, 3, 3))"],
    "bit64": ["bit64::as.integer64(c(1, 2^40))", "data.frame(id = bit64::as.integer64(3))"],
}  # fmt: skip
objects = st.sampled_from(OBJECTS).map(lambda code: OfR(code, REFUSED))


def of_package(package: str) -> list[OfR]:
    return [OfR(code, REFUSED, package=package) for code in IN_PACKAGES[package]]


# --- Lists and data frames of R


def _either_refused(parts: list[OfR], targets: bool) -> bool:
    return any(part.expected(targets) == REFUSED for part in parts)


def _of_parts(parts: list[OfR], targets: bool, names: list[str] | None) -> Described:
    if _either_refused(parts, targets):
        return REFUSED
    made = [part.expected(targets) for part in parts]
    if names is None:
        return {"tuple": made}
    return {"dict": [[name, part] for name, part in zip(names, made, strict=True)]}


names_of_parts = st.text(characters, min_size=1, max_size=3)


@st.composite
def lists_of_r(draw: st.DrawFn, parts: st.SearchStrategy[OfR]) -> OfR:
    drawn = draw(st.lists(parts, max_size=3))
    names = None
    if drawn and draw(st.booleans()):
        names = draw(st.lists(names_of_parts, min_size=len(drawn), max_size=len(drawn), unique=True))
    inside = ", ".join(part.code for part in drawn)
    code = f"list({inside})"
    if names is not None:
        code = f"setNames({code}, c({', '.join(map(text_in_r, names))}))"
    return OfR(code, _of_parts(drawn, False, names), _of_parts(drawn, True, names))


def _frame(columns: list[OfR], targets: bool, names: list[str], rows: int) -> Described:
    made = _of_parts(columns, targets, names)
    if made == REFUSED or not columns:
        return made
    arrays = [part["array"] for _, part in made["dict"]]
    if any(column["dtype"] == "text" for column in arrays):
        return made
    kind = np.result_type(np.float32, *(np.dtype(column["dtype"]) for column in arrays)).name
    return array(kind, [float(column["values"][row]) for row in range(rows) for column in arrays],
                 [rows, len(columns)])  # fmt: skip


@st.composite
def frames_of_r(draw: st.DrawFn, maker: str = "data.frame") -> OfR:
    rows = draw(st.integers(0, 4))
    kinds = ["int32", "float64", "bool"]
    if draw(st.booleans()):
        kinds += ["text", "factor"]
    kinds = draw(st.lists(st.sampled_from(kinds), max_size=3))
    missing = draw(st.booleans())
    columns = [
        draw(factors(rows) if kind == "factor" else arrays_of_r(kind, rows, missing)) for kind in kinds
    ]  # fmt: skip
    names = [f"c{number}" for number in draw(st.permutations(range(len(columns))))]
    inside = ", ".join(f"{name} = {column.code}" for name, column in zip(names, columns, strict=True))
    package = maker.rpartition("::")[0]
    extra = ", stringsAsFactors = FALSE" if maker == "data.frame" and columns else ""
    return OfR(
        f"{maker}({inside}{extra})", _frame(columns, False, names, rows), _frame(columns, True, names, rows),
        package=package or None,
    )  # fmt: skip


nothing = st.just(OfR("NULL", NONE))
parts_of_lists = st.recursive(plain_arrays | factors(), lists_of_r, max_leaves=4)
of_r = plain_arrays | factors() | nothing | objects | lists_of_r(parts_of_lists) | frames_of_r()
