"""A batch size for each worker, and what is said about other values; the warm-up: test_learning_rate.py."""

from typing import Any

import pytest

import tfdistr
from tfdistr import per_worker
from tfdistr.errors import ArgumentError


def test_a_size_in_words() -> None:
    size = per_worker(8.0, scale_learning_rate="sqrt")  # type: ignore[arg-type]
    assert str(size) == 'per_worker(batch_size=8, scale_learning_rate="sqrt")'


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"batch_size": 0}, [
            "`batch_size` must be a whole number of at least 1.", "Received: 0",
            "Fix: Pass batch_size=1, for example."]),
        ({"scale_learning_rate": "cubic"}, [
            "`scale_learning_rate` must be one of 'none', 'linear', 'sqrt'.", "Received: 'cubic'",
            "Fix: Use scale_learning_rate='none'."]),
    ],
)  # fmt: skip
def test_what_is_refused(arguments: dict[str, Any], lines: list[str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        per_worker(**{"batch_size": 8, **arguments})
    assert str(caught.value).splitlines() == lines


def test_the_function_itself_is_no_size() -> None:
    with pytest.raises(ArgumentError, match="`batch_size` must be a whole number of at least 1"):
        tfdistr.distributed_fit(lambda: None, [[1.0]], [1.0], batch_size=per_worker)  # type: ignore[arg-type]
