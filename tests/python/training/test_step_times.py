"""The times of a training, with a clock that the tests set."""

from __future__ import annotations

from types import SimpleNamespace

import keras
import pytest

from tfdistr.training import step_times
from tfdistr.training.epochs import CallbackList
from tfdistr.training.step_times import PARTS, StepTimes, note_call


class Clock:
    """Stands for the module ``time``."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Collectives:
    """Collectives that take time on the clock, of which a part is a wait."""

    def __init__(self, clock: Clock, known: bool = True) -> None:
        self._clock, self._known = clock, known
        self.seconds: float | None = 7.0  # of exchanges before the training
        self._waited = 3.0

    def exchange(self, seconds: float, waited: float = 0.0) -> None:
        self._clock.now += seconds
        self.seconds += seconds
        self._waited += waited

    def begin_waits(self) -> None:
        self._waited = 0.0

    def waited(self) -> float | None:
        return self._waited if self._known else None


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(step_times, "time", clock)
    monkeypatch.setattr(step_times._Process, "called", None)
    return clock


def test_each_second_is_in_one_part(clock):
    note_call()
    clock.now += 2.0
    peers = Collectives(clock)
    times = StepTimes(peers)
    clock.now += 1.0
    peers.exchange(0.5, waited=0.25)
    times.step_done()
    clock.now += 10.0
    peers.exchange(3.0, waited=1.0)
    times.add("waiting_for_data", 2.0)
    with times.measure("callbacks"):
        clock.now += 0.5
        peers.exchange(0.25)
        with times.measure("checkpoints"):
            clock.now += 4.0
            peers.exchange(0.75, waited=0.5)
    times.step_done()  # a later step ends no start
    assert times.finish() == {
        "computing": 8.0,  # 10 seconds of steps, of which 2 were waits for data
        "waiting_for_peers": 1.5,
        "exchanging": 2.5,
        "waiting_for_data": 2.0,
        "checkpoints": 4.0,
        "callbacks": 0.5,
        "start": 3.5,
    }
    assert list(times.finish()) == list(PARTS)


def test_a_training_without_steps_is_all_start(clock):
    peers = Collectives(clock)
    times = StepTimes(peers)
    peers.exchange(1.0, waited=1.0)
    clock.now += 2.0
    found = times.finish()
    assert {name: seconds for name, seconds in found.items() if seconds} == {"start": 3.0}


def test_parts_that_nobody_can_measure_are_left_out(clock):
    ring = Collectives(clock, known=False)
    times = StepTimes(ring, {"waiting_for_data"})
    times.step_done()
    ring.exchange(2.0)
    found = times.finish()
    assert set(PARTS) - set(found) == {"waiting_for_peers", "waiting_for_data"}
    assert found["exchanging"] == 2.0
    ring.seconds = None
    times = StepTimes(ring)
    times.step_done()
    clock.now += 2.0
    found = times.finish()
    assert set(PARTS) - set(found) == {"waiting_for_peers", "exchanging"}
    assert found["computing"] == 2.0


def test_a_call_counts_for_one_training_only(clock):
    note_call()
    clock.now += 5.0
    assert StepTimes().finish()["start"] == 5.0
    clock.now += 5.0
    assert StepTimes().finish()["start"] == 0.0


def test_a_part_is_measured_until_an_error(clock):
    times = StepTimes()
    times.step_done()

    def fail() -> None:
        with times.measure("callbacks"):
            clock.now += 1.0
            raise ValueError("of the callback")

    with pytest.raises(ValueError, match="of the callback"):
        fail()
    assert times.finish()["callbacks"] == 1.0


def test_the_hooks_of_callbacks_are_measured(clock):
    class Slow(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            clock.now += 1.0

        def on_train_batch_end(self, batch, logs=None):
            clock.now += 0.25

    times = StepTimes()
    times.step_done()
    listed = CallbackList([Slow()], model=SimpleNamespace(stop_training=False), times=times)
    listed.on_train_batch_end(0, {"loss": 1.0})
    listed.on_epoch_end(0, {"loss": 1.0})
    assert times.finish()["callbacks"] == 1.25
