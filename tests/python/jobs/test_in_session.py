"""Functions that run in the session, at the end of each epoch of a job."""

import os
import threading
import time
from pathlib import Path

import keras
import numpy as np
import pytest
from clusters import run_well
from launched import processes_of

import tfdistr
from tfdistr.errors import ArgumentError, WorkerFailedError
from tfdistr.training.in_session import ANSWERS, Session, at_epoch_end
from tfdistr.training.watchdog import Watchdog

X = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
Y = X[:, :2]
NOT_A_HOOK = "`on_epoch_end` must be a function of two arguments, the epoch and the logs.\n"


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    made.compile("sgd", "mse", metrics=["mae", keras.metrics.F1Score(threshold=0.5)])
    return made


class Calls:
    """A function that no process but this one can have."""

    def __init__(self, stops_at: int | None = None) -> None:
        self.lock = threading.Lock()
        self.thread = threading.get_ident()
        self.stops_at = stops_at
        self.logs: list[dict] = []

    def __call__(self, epoch, logs):
        assert threading.get_ident() == self.thread
        assert epoch == len(self.logs)
        self.logs.append(logs)
        return "stop" if epoch == self.stops_at else False


def fit(*functions, **options):
    given = {"epochs": 5, "seed": 1, "verbose": 0, "callbacks": [tfdistr.in_session(f) for f in functions]}
    return tfdistr.distributed_fit(model, X, Y, **given | options)


class DiesOnce(keras.callbacks.Callback):
    """Ends the process of worker 1 in the second epoch, once."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self.mark = mark

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 2 and tfdistr.worker_index() == 1 and not self.mark.exists():
            time.sleep(0.5)  # the session has answered before
            self.mark.touch()
            os._exit(3)


@pytest.mark.parametrize("workers", [None, 2])
def test_the_session_sees_what_the_history_gets_and_stops_all_workers(workers):
    calls, others = Calls(), Calls(stops_at=2)
    done = fit(calls, others, cluster=workers and tfdistr.local_cluster(workers))
    assert len(done.history["loss"]) == 3
    assert calls.logs == others.logs
    assert calls.logs[0].keys() == {"loss", "mae", "f1_score"}
    assert {name: [logs[name] for logs in calls.logs] for name in calls.logs[0]} == done.history
    calls.logs[0]["loss"] = None
    assert others.logs[0]["loss"] is not None  # each function has logs of its own


def test_an_epoch_that_a_restart_repeats_is_told_once(tmp_path):
    calls = Calls()
    mark = DiesOnce(tmp_path / "died")
    callbacks = [mark, tfdistr.in_session(calls)]
    again = tfdistr.on_failure(max_restarts=1)
    cluster = tfdistr.local_cluster(2)
    done = fit(callbacks=callbacks, cluster=cluster, failures=again, run_dir=tmp_path / "run")
    assert mark.mark.exists()
    assert [logs["loss"] for logs in calls.logs] == done.history["loss"]


def test_an_error_is_raised_as_it_is_and_no_worker_is_left(tmp_path):
    # Workers are restarted after such an error, if it is about one of them.
    error = WorkerFailedError("of another job", worker=1, host="b")
    calls = []

    def fails(epoch, logs):
        calls.append(epoch)
        raise error from OSError("first")

    with pytest.raises(WorkerFailedError) as caught:
        fit(
            fails, cluster=tfdistr.local_cluster(2), run_dir=tmp_path / "run",
            failures=tfdistr.on_failure(max_restarts=2),
        )  # fmt: skip
    assert caught.value is error
    assert isinstance(error.__cause__, OSError)
    assert error.__context__ is None
    assert calls == [0]
    assert not processes_of(tmp_path / "run")


def test_the_watchdog_of_a_worker_leaves_time_to_the_session(tmp_path):
    session = Session([tfdistr.in_session(print)], tmp_path)
    told = []

    def answers_late(kind, **fields):
        told.append((kind, fields))
        threading.Timer(1.5, session.on_event, [{"event": kind, **fields}]).start()

    ask = at_epoch_end([tfdistr.in_session(print)], tmp_path / ANSWERS, answers_late, chief=True)
    with Watchdog(0.5):
        assert ask(0, {"loss": 1.0}) is False
        assert ask(0, {"loss": 1.0}) is False  # the answer is known
    assert told == [("in_session", {"epoch": 0, "metrics": {"loss": 1.0}})]


def test_parameter_servers_stop():
    calls = Calls(stops_at=1)
    done = fit(calls, cluster=tfdistr.local_cluster(2, ps=1), strategy="parameter_server")
    assert [logs["loss"] for logs in calls.logs] == done.history["loss"]
    assert len(calls.logs) == 2


def test_in_a_cluster_by_hand_the_session_of_the_chief_calls_the_function():
    said = {process.output.strip().splitlines()[-1] for process in run_well("in_session.py", 2, [])}
    assert said == {"worker 0: 2 epochs, called in [0, 1]", "worker 1: 2 epochs, called in []"}


def test_a_function_of_callbacks_may_make_one_in_this_process_only():
    calls = Calls(stops_at=0)
    assert len(fit(callbacks=lambda: tfdistr.in_session(calls)).history["loss"]) == 1
    with pytest.raises(WorkerFailedError, match=r"in_session\(\) must be called in the session, not by a"):
        fit(callbacks=lambda: [tfdistr.in_session(print)], cluster=tfdistr.local_cluster(1))


@pytest.mark.parametrize(
    ("given", "received"),
    [
        (5, "a number (5)"),
        (None, "None"),
        (lambda: None, "a function of ()"),
        (lambda epoch: None, "a function of (epoch)"),
        (lambda a, b, c: None, "a function of (a, b, c)"),
        (lambda *, epoch, logs: None, "a function of (*, epoch, logs)"),
    ],
)
def test_what_is_no_function_of_two_arguments_is_refused(given, received):
    with pytest.raises(ArgumentError) as caught:
        tfdistr.in_session(given)
    assert str(caught.value) == f"{NOT_A_HOOK}Received: {received}\nFix: Pass a function of (epoch, logs)."


@pytest.mark.parametrize("given", [print, lambda *_: None, lambda a, b, c=1: None, Calls()])
def test_what_takes_two_arguments_is_a_function(given):
    assert tfdistr.in_session(given).on_epoch_end is given


def test_a_fit_of_keras_refuses_it():
    for call in ("fit", "evaluate"):
        with pytest.raises(ArgumentError, match="is for the callbacks of distributed_fit"):
            getattr(model(), call)(X, Y, callbacks=[tfdistr.in_session(print)], verbose=0)


def test_a_session_that_continues_a_run_forgets_the_answers_of_the_one_before(tmp_path):
    tmp_path.joinpath(ANSWERS).write_text('{"epoch": 0, "stop": true}\n')
    calls = Calls()
    session = Session([tfdistr.in_session(calls)], tmp_path)
    assert tmp_path.joinpath(ANSWERS).read_text() == ""
    for _ in range(2):
        session.on_event({"event": "in_session", "epoch": 0, "metrics": {"loss": 1.0}})
    assert tmp_path.joinpath(ANSWERS).read_text() == '{"epoch": 0, "stop": false}\n'
    assert calls.logs == [{"loss": 1.0}]
    Session(None, tmp_path)
    assert not tmp_path.joinpath(ANSWERS).exists()
