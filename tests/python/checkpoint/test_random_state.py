"""The random numbers of R in checkpoints."""

import os
import signal

import pytest

from tfdistr.checkpoint import python_state
from tfdistr.checkpoint.python_state import keep_random_numbers, set_random_state
from tfdistr.checkpoint.python_state import random_state as state_of


@pytest.fixture(autouse=True)
def _no_other_language(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_state, "_foreign", {})


def test_those_of_another_language_come_back():
    restored: list[str] = []
    keep_random_numbers("r", lambda: "403 1 2", restored.append)
    arrays: list = []
    state = state_of(arrays)
    assert state["r"] == "403 1 2"
    set_random_state(state, arrays)
    assert restored == ["403 1 2"]


def test_an_interrupt_waits_until_r_has_answered():
    done: list[str] = []

    def interrupted(what: str) -> str:
        os.kill(os.getpid(), signal.SIGINT)
        done.append(what)
        return what

    keep_random_numbers("r", lambda: interrupted("get"), interrupted)
    with pytest.raises(KeyboardInterrupt):
        state_of([])
    arrays: list = []
    with pytest.raises(KeyboardInterrupt):
        set_random_state({**plain_state(arrays), "r": "restore"}, arrays)
    assert done == ["get", "restore"]


def plain_state(arrays: list) -> dict:
    kept, python_state._foreign = python_state._foreign, {}
    try:
        return state_of(arrays)
    finally:
        python_state._foreign = kept
