"""One job from its arguments to its result: what the language that calls has a part in."""

import inspect
import os
from types import SimpleNamespace

import attrs
import keras
import numpy as np
import pytest

import tfdistr
from tfdistr.errors import ArgumentError
from tfdistr.jobs.caller import Caller
from tfdistr.jobs.in_process import AsWorker
from tfdistr.jobs.run import run_fit
from tfdistr.jobs.run_dir import open_run_dir
from tfdistr.r.values import seed_of_r
from tfdistr.training.job import Job

pytestmark = pytest.mark.timeout(120)


def defaults() -> dict[str, object]:
    """The arguments of ``distributed_fit()`` and their values where the user gives none."""
    parameters = inspect.signature(tfdistr.distributed_fit).parameters
    given = {name: parameter.default for name, parameter in parameters.items()}
    return {name: value for name, value in given.items() if value is not inspect.Parameter.empty}


def test_a_job_has_the_defaults_of_the_call():
    of_call = defaults()
    of_job = {field.name: field.default for field in attrs.fields(Job)}
    same = set(of_call) & set(of_job) - {"seed", "batch_size"}  # which are drawn, and 32 for examples
    assert len(same) > 10
    assert {name: of_call[name] for name in same} == {name: of_job[name] for name in same}


@pytest.mark.parametrize("run_dir", [None, "run"])
def test_a_working_directory_that_was_removed_is_named(tmp_path, monkeypatch, run_dir):
    (folder := tmp_path / "folder").mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(ArgumentError, match="The working directory of") as caught, open_run_dir(run_dir):
        pass
    assert caught.value.received == "one that was removed"


def test_the_caller_prepares_the_run_and_builds_the_model(tmp_path):
    def model():
        made = keras.Sequential([keras.layers.Dense(1)])
        made.compile("sgd", "mse")
        return made

    seen = []

    def before_start(seed: int, run_dir: str) -> None:
        seen.append((seed, run_dir, os.listdir(run_dir)))

    arguments = {name: value for name, value in defaults().items() if name != "verbose"}
    cluster = tfdistr.local_cluster(1)
    x = np.ones((8, 2), "float32")
    run_dir = str(tmp_path / "run")
    fit = run_fit(
        Caller(lambda event: None, before_start=before_start, build=lambda: "built by the caller"),
        **arguments | {"model": model, "x": x, "y": x[:, :1], "cluster": cluster, "run_dir": run_dir},
    )  # fmt: skip
    assert seen == [(seed_of_r(fit.params["seed"]), run_dir, ["lock"])]
    assert fit._trained.recipe_here() == "built by the caller"


def test_the_validation_may_have_a_batch_size_of_its_own():
    sizes = []

    class Sees(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x, training=False):
            if not training and x.shape[0] is not None:
                sizes.append(x.shape[0])
            return self.dense(x)

    def model():
        made = Sees()
        made.compile("sgd", "mse", run_eagerly=True)
        return made

    x = np.ones((10, 2), "float32")
    fit = tfdistr.distributed_fit(
        model, x, x[:, :1], batch_size=10, validation_data=(x, x[:, :1]), validation_batch_size=4, verbose=0
    )
    assert sizes[-3:] == [4, 4, 2]
    assert fit.params["validation_batch_size"] == 4


def test_a_worker_by_hand_with_several_devices_is_refused():
    with pytest.raises(ArgumentError, match="Workers that join a cluster by hand train on one") as caught:
        AsWorker(SimpleNamespace(num_workers=2, worker_index=0, collectives=None)).agree(None)
    assert caught.value.received == "a worker that sees several GPUs"
