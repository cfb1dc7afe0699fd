"""No value changes silently between R and Python: it is the same on the other side, or an error says why.

The values are drawn (values.py). A process with R and Python (in_types.py) says what becomes of them.
"""

from __future__ import annotations

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
    "must hold numbers, logical values, text or a factor.", "must not have missing values, which",
    "must hold text whose encoding R knows.", "must have a different name for each of its parts.",
    "must be arrays, a data frame, a data set", "must hold numbers, logical values or text, and no missing",
    "R must have every whole number of the result",
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


# --- There and back


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


@drawn(60, 150, values.arrays_of_python())
def test_arrays_of_python_come_back_from_r(both, value):
    made, expected = value
    observed = ask(both, "of_python", value=made)
    if expected == values.REFUSED:
        check_refused(observed, value)
    else:
        assert "error" not in observed, (value, observed)
        assert same(observed["arrays"], expected), (value, observed)


#: Objects of Python, and their arrays by hand; None: an error says that there are none.
FRAME = "pd.DataFrame({'a': [1, 2], 'b': [0.5, np.nan]})"
INTEGERS = "pd.DataFrame({'a': pd.array([1, None], dtype='Int64')})"
OF_PYTHON: dict[str, values.Described | None] = {
    FRAME: values.array("float64", [1.0, 0.5, 2.0, math.nan], [2, 2]),
    "pd.DataFrame({'a': [1, 2], 'b': ['u', 'v']})": {
        "dict": [["a", values.array("int64", [1, 2], [2])], ["b", values.array("text", ["u", "v"], [2])]]
    },
    "pd.Series(pd.Categorical(['u', 'v', 'u']))": values.array("text", ["u", "v", "u"], [3]),
    "pd.Series([1, 2], dtype='Int64')": values.array("int64", [1, 2], [2]),
    INTEGERS: values.array("float64", [1.0, math.nan], [2, 1]),
    "pd.DataFrame({'a': pd.Categorical(['u', None])})": None,
    "pd.DataFrame({'a': pd.array([True, None], dtype='boolean')})": None,
    "pd.DataFrame({'a': ['u', None]})": None,
    "pd.DataFrame({'when': pd.to_datetime(['2020-01-01', None])})": None,
    "pd.Series(pd.to_timedelta([1, 2], unit='s'))": None,
    "{'a': np.ones((2, 1)), 'b': np.zeros(2, bool)}": {
        "dict": [["a", values.array("float64", [1.0, 1.0], [2, 1])],
                 ["b", values.array("bool", [False, False], [2])]]
    },
    "(np.ones(1, 'float32'), np.array(['é']))": {
        "tuple": [values.array("float32", [1.0], [1]), values.array("text", ["é"], [1])]
    },
    "tf.constant([[1, 2]])": values.array("int32", [1, 2], [1, 2]),
    "tf.constant(['a', 'b'])": values.array("text", [{"bytes": "61"}, {"bytes": "62"}], [2]),
    "tf.Variable([0.5])": values.array("float32", [0.5], [1]),
    "tf.ragged.constant([[1], [2, 3]])": None,
    "tf.sparse.from_dense([[1, 0]])": None,
    "np.array(['2020-01-01'], 'datetime64[D]')": None,
    "np.array([(1, 2.0)], dtype=[('a', int), ('b', float)])": None,
    "np.ma.array([1, 2], mask=[False, True])": None,
    "np.arange(4, dtype='>i8').reshape(2, 2).T": values.array("int64", [0, 2, 1, 3], [2, 2]),
    "[1.5, None]": None,
    "[1, 'a']": None,
    "{}": {"dict": []},
    "np.zeros((0, 3), 'float32')": values.array("float32", [], [0, 3]),
}  # fmt: skip


@pytest.mark.parametrize("code", OF_PYTHON)
def test_objects_of_python_are_read_as_they_are(both, code):
    expected = OF_PYTHON[code]
    for observed in ask(both, "passed", value={"code": code}):
        if expected is None:
            check_refused(observed, code)
        else:
            assert same(observed, expected), (code, observed)


def test_sparse_matrices_of_scipy_are_refused(both):
    pytest.importorskip("scipy", reason="SciPy is not installed")
    for observed in ask(both, "passed", value={"code": "__import__('scipy.sparse').sparse.eye(3)"}):
        check_refused(observed, "a sparse matrix")


# --- In a job


@drawn(12, 30, values.examples())
def test_batches_of_r_are_those_of_python(both, data):
    by_hand, of_r = ask(both, "batches", r=data.r, python=data.python)
    assert "error" not in of_r, (data, of_r)
    assert same(of_r, by_hand), (data, by_hand, of_r)


@drawn(2, 5, values.examples(finite=True))
def test_a_step_with_data_of_r_has_the_bits_of_one_with_data_of_python(both, data):
    by_hand, of_r = ask(both, "steps", r=data.r, python=data.python)
    assert "error" not in by_hand, (data, by_hand)
    assert same(of_r, by_hand), (data, by_hand, of_r)


#: Arguments of distributed_fit() that are no data. `verbose` has a check of its own in each language.
OPTIONS = [
    "batch_size", "per_worker_batch_size", "epochs", "steps_per_epoch", "validation_split",
    "validation_steps", "validation_batch_size", "validation_freq", "initial_epoch", "callbacks",
    "class_weight", "seed", "shuffle", "drop_remainder", "scale_learning_rate", "warmup_epochs",
    "communication", "gradient_dtype", "virtual_workers", "run_dir", "checkpoint_every", "resume",
    "max_restarts", "min_workers", "start_timeout", "heartbeat_timeout", "step_timeout", "strategy",
    "cluster",
]  # fmt: skip


def check_option(both: Both, name: str, option: values.Option) -> None:
    by_hand, of_r = ask(both, "options", name=name, code=option.code, python=option.python)
    if option.python is None:
        assert "error" in of_r, (name, option, of_r)
        assert of_r["error"]["class"] == "ArgumentError", (name, option, of_r)
        assert str(option.words) in of_r["error"]["received"], (name, option, of_r)
    elif "error" in by_hand:
        of_r["error"].pop("language", None)
        by_hand["error"].pop("language", None)
        assert of_r == by_hand, (name, option)
    else:
        assert same(of_r, by_hand), (name, option, by_hand, of_r)


@drawn(25, 50, st.sampled_from(OPTIONS), st.sampled_from(values.ODD_OPTIONS))
def test_what_r_alone_has_is_no_option(both, name, option):
    check_option(both, name, option)


@pytest.mark.parametrize("name", ["shuffle", "drop_remainder", "resume"])
def test_na_is_no_flag(both, name):
    check_option(both, name, values.Option("NA", words="NA"))


@drawn(30, 80, st.sampled_from(OPTIONS), st.sampled_from(values.SAME_OPTIONS))
def test_options_of_r_make_the_job_of_python(both, name, option):
    check_option(both, name, option)
