"""What R gets of results and errors."""

import math
from types import SimpleNamespace

from tfdistr.errors import ArgumentError, JobStoppedError, WorkerFailedError
from tfdistr.jobs.result import FitResult
from tfdistr.jobs.values_for_r import error_for_r, fit_for_r, worker_columns
from tfdistr.supervision.supervisor import WorkerStatus

ROW = {"index": 0, "host": "here", "pid": 1, "status": "done", "seconds": 1.5, "log": None}


def test_a_result():
    params = {"workers": 1, "batch_size": 32, "seed": 2**32 - 1, "initial_epoch": 0, "validation_freq": 2}
    history = {"loss": [2.0, math.nan], "val_loss": [3.0]}
    fit = FitResult(history, params, [ROW], "/run", SimpleNamespace())
    made = fit_for_r(fit)
    assert made["params"]["seed"] == float(2**32 - 1)
    assert made["workers"]["index"] == [0]
    assert made["text"] == [
        "Trained on 1 worker, 2 epochs, global batch 32, seed 4294967295",
        "  loss: NaN", "  val_loss: 3.0000", "Run: /run",
    ]  # fmt: skip
    assert made["wide"]["epoch"] == [1, 2]
    assert made["wide"]["val_loss"] == [None, 3.0]
    assert made["long"]["epoch"] == [1, 2, 2]
    assert made["long"]["metric"] == ["loss"] * 3
    assert made["long"]["data"] == ["training", "training", "validation"]


def test_a_metric_with_several_values():
    params = {"workers": 1, "batch_size": 32, "seed": 1, "initial_epoch": 0, "validation_freq": 1}
    made = fit_for_r(FitResult({"f1": [[0.5, 0.25]]}, params, [ROW], None, SimpleNamespace()))
    assert made["history"] == {"f1": [[0.5, 0.25]]}
    assert made["wide"] == {"epoch": [1], "f1[0]": [0.5], "f1[1]": [0.25]}


def test_the_states_of_workers():
    assert worker_columns([]) is None
    assert worker_columns([ROW]) == {name: [value] for name, value in ROW.items()}
    status = WorkerStatus(1, "there", 2, "failed", 0.5, "/log", -9)
    assert worker_columns([status])["log"] == ["/log"]
    server = {**ROW, "task": "ps 0"}
    columns = worker_columns([{**ROW, "task": "worker 0", "local_steps": 3, "dropped": 0}, server])
    assert (columns["task"], columns["local_steps"]) == (["worker 0", "ps 0"], [3, None])


def test_an_error_is_in_the_words_of_r():
    error = ArgumentError("`x` must be None.", received=[1, 2], fix="Pass x=True.")
    assert error_for_r(error) == {
        "kind": "argument", "message": "`x` must be NULL.", "received": "c(1, 2)", "fix": "Pass x = TRUE.",
    }  # fmt: skip
    assert error_for_r(JobStoppedError("ended"))["status"] == 75


def test_the_failure_of_a_worker_is_in_its_own_words():
    said = "Worker 0 failed: x=None"
    failure = WorkerFailedError(said, worker=0, host="here", log="/log", fix="Pass y=None.")
    made = error_for_r(failure)
    assert (made["message"], made["fix"]) == ("Worker 0 failed: x=None", "Pass y = NULL.")
    assert (made["worker"], made["host"], made["log"], made["exit_code"]) == (0, "here", "/log", None)
    assert made["workers"] is None


def test_rows_are_counted_as_r_does():
    error = ArgumentError("A value is missing.", received="no value of column 'a' in row 2 of rows.csv")
    assert error_for_r(error)["received"] == "no value of column 'a' in row 3 of rows.csv"
    error = ArgumentError("`files` must be whole.", received="rows.csv, from row 0 on: Row #4: 3,0,9")
    assert error_for_r(error)["received"] == "rows.csv, from row 1 on: Row #4: 3,0,9"


def test_a_worker_s_failure_is_without_the_frames_of_python():
    failure = WorkerFailedError("Worker 0 failed\n\nTraceback: ...", worker=0, host="a", traceback="...")
    failure._in_short = "Worker 0 failed"
    assert error_for_r(failure)["message"] == "Worker 0 failed"
    assert error_for_r(failure)["traceback"] == "..."
