"""Interrupts that are held back, and come later."""

import os
import signal

import pytest

from tfdistr.utils import interrupts as module
from tfdistr.utils.interrupts import defer_sigint, holds_back, uninterrupted


def interrupted(times: int, *, once: bool) -> list[bool]:
    """What is seen after each of several interrupts of such code, until one of them comes."""
    before, seen = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with uninterrupted(once=once):
            assert not holds_back()
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
                seen.append(holds_back())

    with pytest.raises(KeyboardInterrupt):
        work()
    assert signal.getsignal(signal.SIGINT) is before
    assert not holds_back()
    return seen


@pytest.mark.parametrize("times", [1, 3])
def test_an_interrupt_comes_at_the_end(times):
    assert interrupted(times, once=False) == [False] * times


def test_one_interrupt_comes_at_the_end_and_a_second_at_once():
    assert interrupted(1, once=True) == [True]
    assert interrupted(3, once=True) == [True]


def test_an_interrupt_waits_for_the_end_of_a_whole_call():
    done: list[str] = []

    def call(what: str) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        done.append(what)

    with pytest.raises(KeyboardInterrupt):
        defer_sigint(call)("done")
    assert done == ["done"]
    assert defer_sigint(len)([1, 2]) == 2


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("once", [False, True])
def test_an_interrupt_of_the_first_moment_comes_before_the_code(monkeypatch, times, once):
    sends, done = [signal.SIGINT] * times, []

    def take() -> None:
        while sends:
            os.kill(os.getpid(), sends.pop())

    monkeypatch.setattr(module, "_take_what_came", take)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), uninterrupted(once=once):
        done.append("the code")
    assert (done, sends, holds_back()) == ([], [], False)
    assert signal.getsignal(signal.SIGINT) is before
    with uninterrupted(once=once):
        done.append("the code")
    assert done == ["the code"]
