"""Each warning of a job arrives once, and as an error it ends the job."""

import os
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from launched import processes_of, wait_for

import tfdistr

X = np.arange(64.0, dtype="float32").reshape(32, 2)
NORMALIZES = (
    "norm: each worker normalizes with its own rows, so the result is not that of one worker. "
    "BatchNormalization(synchronized=True) normalizes with the rows of all."
)


def model() -> keras.Model:
    made = keras.Sequential([keras.layers.BatchNormalization(name="norm"), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


def callbacks() -> list[keras.callbacks.Callback]:
    import warnings

    import tfdistr

    index = tfdistr.worker_index()

    def warns(epoch: int, logs: Any) -> None:
        warnings.warn("it rains on all", RuntimeWarning, stacklevel=1)
        if index == 1:
            warnings.warn("it rains here", stacklevel=1)

    return [keras.callbacks.LambdaCallback(on_epoch_begin=warns)]


def fit(workers: int | None, **options: Any) -> Any:
    cluster = None if workers is None else tfdistr.local_cluster(workers)
    given = {"epochs": 2, "seed": 1, "verbose": 0, "callbacks": callbacks} | options
    return tfdistr.distributed_fit(model, X, X[:, :1], cluster=cluster, **given)


def test_each_warning_of_workers_arrives_once_and_says_whose_it_is():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        done = fit(2)
    given = [(str(one.message), one.category, one.filename, one.message.worker) for one in caught]
    (of_all,) = {worker for *_, worker in given} - {None, 1} or {1}  # the one that is read first
    assert sorted(given, key=str) == sorted(
        [(NORMALIZES, tfdistr.TfdistrWarning, __file__, None),
         (f"Worker {of_all}: it rains on all", tfdistr.TfdistrWarning, __file__, of_all),
         ("Worker 1: it rains here", tfdistr.TfdistrWarning, __file__, 1)],
        key=str,
    )  # fmt: skip
    log = Path(done.workers[1]["log"]).read_text()
    assert log.count("UserWarning: it rains here\n") == log.count("RuntimeWarning: it rains on all\n") == 1


def test_as_an_error_a_warning_ends_the_job_and_its_workers(tmp_path):
    message = "Worker 1: it rains here"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message.partition(",")[0])
        with pytest.raises(tfdistr.TfdistrWarning) as caught:
            fit(2, run_dir=tmp_path / "run", epochs=10**6)
    assert str(caught.value) == message
    assert wait_for(lambda: not processes_of(tmp_path), 1)
    assert not os.path.exists(tmp_path / "run" / "workers" / "0" / "tmp")
