"""Which callbacks are those of trackers, and how their runs end, with modules in their place."""

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from tfdistr.errors import ArgumentError
from tfdistr.utils.trackers import check_not_sent, end_runs, of_tracker

Logger = type("Logger", (), {"__module__": "mlflow.keras.callback"})
Own = type("Own", (Logger,), {"__module__": "my_callbacks"})
Other = type("Other", (), {"__module__": "mlflowish"})


def test_callbacks_of_trackers_are_known_by_their_library():
    assert of_tracker(Logger())
    assert of_tracker(Own())
    assert not of_tracker(Other())


def test_a_callback_of_a_tracker_is_not_sent():
    for sent in (None, [Other()], lambda: [Logger()]):
        check_not_sent(sent)
    with pytest.raises(ArgumentError, match="The callback of a tracker must be created where") as caught:
        check_not_sent([Other(), Own()])
    assert caught.value.received == "an object of class my_callbacks.Own in the list `callbacks`"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is called of an MLflow and a W&B with a run each."""
    calls: list[Any] = []

    def finish(exit_code: int) -> None:
        calls.append(exit_code)

    run = SimpleNamespace(info=SimpleNamespace(run_id="the run"))
    mlflow = SimpleNamespace(
        active_run=lambda: run, flush_async_logging=lambda: calls.append("flushed"),
        MlflowClient=lambda: SimpleNamespace(set_terminated=lambda *end: calls.append(end)),
    )  # fmt: skip
    wandb = SimpleNamespace(run="run", finish=finish)
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    return calls


@pytest.mark.parametrize(("status", "code"), [("FINISHED", 0), ("FAILED", 1), ("KILLED", 1)])
def test_runs_end_with_the_status_of_the_job(ended, status, code):
    end_runs(status)
    assert ended == ["flushed", ("the run", status), code]


def test_a_run_that_cannot_be_ended_is_a_warning(ended, monkeypatch):
    def fail() -> None:
        raise OSError("no server")

    monkeypatch.setattr(sys.modules["mlflow"], "flush_async_logging", fail)
    with pytest.warns(UserWarning, match="Cannot end the run of mlflow: OSError: no server"):
        end_runs("FINISHED")
    assert ended == [0]  # that of W&B is ended all the same


def test_a_server_that_does_not_answer_is_not_awaited(ended, monkeypatch):
    answer = threading.Event()
    monkeypatch.setattr(sys.modules["mlflow"], "flush_async_logging", answer.wait)
    with pytest.warns(UserWarning, match=r"Cannot end the run of mlflow: it took more than 0\.1 s"):
        end_runs("FAILED", seconds=0.1)
    answer.set()
    assert 1 in ended


def test_without_runs_nothing_is_ended(ended, monkeypatch):
    monkeypatch.setattr(sys.modules["wandb"], "run", None)
    monkeypatch.delitem(sys.modules, "mlflow")
    end_runs("FINISHED")
    assert ended == []
