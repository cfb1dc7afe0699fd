"""No value changes silently between R and Python: it is the same on the other side, or an error says why.

The values are drawn (values.py). A process with R and Python (in_types.py) says what becomes of them.
"""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import values
from both_process import Both
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slow import few_or_many

pytestmark = pytest.mark.timeout(900)

#: What the errors of tfdistr say of a value that the other language does not have.
RULES = (
    "must hold numbers, logical values, text or a factor.", "must not have missing values",
    "must hold text whose encoding R knows.", "must have a different name for each of its parts.",
    "must be arrays, a data frame, a data set", "must hold numbers, logical values or text, and no missing",
    "R cannot represent a whole number of the result",
)  # fmt: skip


def drawn(few: int, many: int, *strategies: st.SearchStrategy[Any]) -> Any:
    def decorate(check: Any) -> Any:
        def run(both: Both) -> None:
            @settings(
                max_examples=few_or_many(few, many), deadline=None, derandomize=True, database=None,
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            @given(st.tuples(*strategies))
            def each(made: tuple[Any, ...]) -> None:
                check(both, *made)

            each()

        run.__doc__ = check.__doc__
        return run

    return decorate


@pytest.fixture(scope="module")
def both(with_pandas: None) -> Iterator[Both]:
    process = Both()
    yield process
    process.end()


def ask(both: Both, what: str, **of: Any) -> Any:
    answer = both.answer({"ask": what, "of": of}, what)
    assert not (isinstance(answer, dict) and "broken" in answer), answer["broken"]
    return answer


def check_refused(observed: Any, of: object) -> None:
    assert isinstance(observed, dict), (of, observed)
    assert "error" in observed, (of, observed)
    error = observed["error"]
    assert error["class"] == "ArgumentError", (of, error)
    assert any(rule in error["message"] for rule in RULES), (of, error)
    assert error["received"], (of, error)
    assert error["fix"], (of, error)


def same(one: Any, other: Any) -> bool:
    """Whether two descriptions are the same; NaN is the same as NaN, and 1.0 is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other


def check_of_r(both: Both, value: values.OfR, targets: bool) -> None:
    observed = ask(both, "of_r", code=value.code, targets=targets)
    expected = value.expected(targets)
    if expected == values.REFUSED or _has_null(expected):
        check_refused(observed, value)
        return
    assert "error" not in observed, (value, observed)
    assert same(observed["arrays"], expected), (value, observed)
    if expected != values.NONE:
        assert observed["differs"] == [], (value, observed)


def _has_null(expected: values.Described) -> bool:
    return any(part == values.NONE for part in expected.get("tuple", ()))


@drawn(60, 150, values.of_r, st.booleans())
def test_values_of_r_come_back_as_they_were(both, value, targets):
    check_of_r(both, value, targets)


@pytest.mark.parametrize("code", values.OBJECTS)
def test_objects_without_a_form_in_python_are_refused(both, code):
    check_of_r(both, values.OfR(code, values.REFUSED), targets=False)
    check_of_r(both, values.OfR(code, values.REFUSED), targets=True)


@pytest.mark.parametrize("package", values.IN_PACKAGES)
def test_objects_of_packages_are_refused(both, package):
    needs(both, package)
    for value in values.of_package(package):
        check_of_r(both, value, targets=False)


@pytest.mark.parametrize("maker", ["tibble::tibble", "data.table::data.table"])
def test_data_frames_of_packages(both, maker):
    needs(both, maker.partition("::")[0])

    @settings(max_examples=10, deadline=None, derandomize=True, database=None)
    @given(values.frames_of_r(maker))
    def each(value: values.OfR) -> None:
        check_of_r(both, value, targets=False)

    each()


def needs(both: Both, package: str) -> None:
    if not ask(both, "installed", package=package):
        pytest.skip(f"R has no package {package}")
