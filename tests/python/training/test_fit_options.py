"""What per_worker() and on_failure() take, and what is said about other values."""

from collections.abc import Callable
from typing import Any

import pytest
from refusals import assert_says

import tfdistr
from tfdistr import on_failure, per_worker
from tfdistr.errors import ArgumentError


def test_a_reaction_in_words() -> None:
    assert str(on_failure()) == "on_failure()"
    assert str(on_failure(max_restarts=3.0, step_timeout=60)) == (  # type: ignore[arg-type]
        "on_failure(max_restarts=3, step_timeout=60.0)"
    )


def test_a_size_in_words() -> None:
    size = per_worker(8.0, scale_learning_rate="sqrt")  # type: ignore[arg-type]
    assert str(size) == 'per_worker(batch_size=8, scale_learning_rate="sqrt")'


@pytest.mark.parametrize(
    ("call", "arguments", "said"),
    [
        (on_failure, {"max_restarts": -1},
         ["`max_restarts` must be a whole number of", "Received: -1",
          "Fix: Pass max_restarts=1, for example."]),
        (on_failure, {"min_workers": 0},
         ["`min_workers` must be a whole number of at", "Received: 0",
          "Fix: Pass min_workers=1, for example."]),
        (on_failure, {"step_timeout": "60"},
         ["`step_timeout` must be a number of seconds", "Received: '60'",
          "Fix: Pass step_timeout=60.0, for example."]),
        (per_worker, {"batch_size": 0},
         ["`batch_size` must be a whole number of at", "Received: 0",
          "Fix: Pass batch_size=1, for example."]),
        (per_worker, {"batch_size": 8, "scale_learning_rate": "cubic"},
         ["`scale_learning_rate` must be one of", "Received: 'cubic'",
          "Fix: Use scale_learning_rate='none'."]),
    ],
)  # fmt: skip
def test_what_is_refused(call: Callable[..., Any], arguments: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(ArgumentError) as caught:
        call(**arguments)
    assert_says(caught.value, said)


@pytest.mark.parametrize(
    ("failures", "received"),
    [(3, "a number (3)"), ("restart", "a text ('restart')"), (on_failure, "a function")],
)
def test_what_is_no_reaction(failures: Any, received: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        tfdistr.distributed_fit(lambda: None, [[1.0]], [1.0], failures=failures)
    assert_says(caught.value, ["`failures` must be what on_failure() returns.", f"Received: {received}"])
