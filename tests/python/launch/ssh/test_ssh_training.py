"""Training on workers that ssh starts: the numbers of one worker, failures, restarts, R."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from launched import wait_for
from ssh_job import Job

import tfdistr
from tfdistr.errors import WorkerFailedError

pytestmark = pytest.mark.timeout(240)


def model() -> Any:
    import keras

    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10, "softmax")])
    model.compile(keras.optimizers.SGD(0.001, momentum=0.9), "sparse_categorical_crossentropy")
    return model


def fit(build: Callable[[], Any], cluster: Any, **options: Any) -> tfdistr.FitResult:
    digits = tfdistr.load_dataset("digits")
    return tfdistr.distributed_fit(
        build, digits, cluster=cluster,
        **{"batch_size": 64, "steps_per_epoch": 22, "epochs": 2, "seed": 1, "verbose": 0, **options},
    )


@pytest.mark.slow
@pytest.mark.parametrize("warm", [False, True])
def test_distributed_fit_on_two_hosts_gives_the_numbers_of_one_worker(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    many = fit(model, job.cluster("ab", warm=warm))
    one = fit(model, tfdistr.local_cluster(1))
    assert [worker["host"] for worker in many.workers] == [job.net.address("a"), job.net.address("b")]
    assert many.params["communication"] == "ring"
    assert Path(str(many.run_dir)).parent == tmp_path
    np.testing.assert_allclose(many.history["loss"], one.history["loss"], rtol=1e-6)
    for received, expected in zip(many.model.get_weights(), one.model.get_weights(), strict=True):
        np.testing.assert_allclose(received, expected, atol=1e-6)
    assert bool(job.net.fork_servers()) == warm
    tfdistr.stop_warm_workers()
    assert wait_for(lambda: not job.net.fork_servers(), 10)


@pytest.mark.slow
@pytest.mark.usefixtures("apart")
def test_distributed_fit_through_tunnels_gives_the_numbers_of_one_worker(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    many, one = fit(model, job.cluster("ab", tunnels=True)), fit(model, tfdistr.local_cluster(1))
    for received, expected in zip(many.model.get_weights(), one.model.get_weights(), strict=True):
        np.testing.assert_allclose(received, expected, atol=1e-6)


@pytest.mark.slow
def test_an_error_in_the_model_comes_with_its_traceback(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def broken() -> Any:
        raise ValueError("no model here")

    with pytest.raises(WorkerFailedError) as caught:
        fit(broken, job.cluster("ab"))
    named = r"Worker \d of 2 on 198\.18\.\d+\.\d failed: ValueError: no model here"
    assert re.match(named, str(caught.value))
    assert 'raise ValueError("no model here")' in str(caught.value)


@pytest.mark.slow
def test_a_job_goes_on_from_its_checkpoint_after_a_worker_was_killed(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    once = tmp_path / "killed"

    def callbacks() -> list[Any]:
        import os

        import keras

        class Kill(keras.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                chief = '"index": 0' in os.environ["TF_CONFIG"]
                if epoch == 1 and not chief and not once.exists():
                    once.touch()
                    os.kill(os.getpid(), signal.SIGKILL)

        return [Kill()]

    many = fit(
        model, job.cluster("ab"), callbacks=callbacks, run_dir=tmp_path / "run", checkpoint_every="epoch",
        max_restarts=1,
    )  # fmt: skip
    assert once.exists()
    assert list((tmp_path / "run" / "logs").glob("*.failed-1"))
    one = fit(model, tfdistr.local_cluster(1))
    for received, expected in zip(many.model.get_weights(), one.model.get_weights(), strict=True):
        np.testing.assert_allclose(received, expected, atol=1e-6)


@pytest.mark.slow
def test_a_host_that_is_cut_off_while_it_trains_is_named(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def callbacks() -> list[Any]:

        import keras

        class Slow(keras.callbacks.Callback):
            def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
                (tmp_path / f"epoch-{epoch}").touch()
                time.sleep(0.3)

        return [Slow()]

    def cut() -> None:
        if wait_for((tmp_path / "epoch-2").exists, 120):
            job.net.cut("b")

    thread = threading.Thread(target=cut)
    thread.start()
    try:
        with pytest.raises(WorkerFailedError) as caught:
            fit(model, job.cluster("ab"), callbacks=callbacks, epochs=1000, heartbeat_timeout=10)
        assert wait_for(lambda: not job.net.processes(), 40)
    finally:
        thread.join()
        job.net.mend("b")
    b = job.net.address("b")
    assert str(caught.value).startswith(f"Worker 1 of 2 on {b} gave no sign of life for ")
    assert (caught.value.worker, caught.value.host) == (1, b)


R_JOB = """
library(tfdistr)
digits <- load_dataset("digits")
model <- function() {
  keras <- reticulate::import("keras")
  model <- keras$Sequential(list(keras$layers$Flatten(), keras$layers$Dense(10L, "softmax")))
  model$compile("adam", "sparse_categorical_crossentropy")
  model
}
fit <- function(cluster) {
  distributed_fit(
    model, digits, cluster = cluster, batch_size = 64, steps_per_epoch = 22, epochs = 2, seed = 1, verbose = 0
  )
}
args <- commandArgs(TRUE)
many <- fit(ssh_cluster(args[-(1:2)], ssh = args[[1]], warm = args[[2]] == "warm"))
one <- fit(local_cluster(1))
stopifnot(identical(many$params$communication, "ring"), identical(many$workers$host, args[-(1:2)]))
apart <- Map(function(a, b) max(abs(a - b)), many$model$get_weights(), one$model$get_weights())
cat("apart by", format(max(unlist(apart))), "\\n")
stopifnot(max(unlist(apart)) < 1e-6)
"""


@pytest.mark.slow
@pytest.mark.parametrize("start", ["warm", "cold"])
def test_workers_of_r_give_the_numbers_of_one(job: Job, tmp_path: Path, start: str) -> None:
    script = tmp_path / "job.R"
    script.write_text(R_JOB)
    addresses = [job.net.address("a"), job.net.address("b")]
    env = {"RETICULATE_PYTHON": sys.executable, **os.environ}
    ended = subprocess.run(
        ["Rscript", str(script), job.net.ssh, start, *addresses], cwd=tmp_path, env=env, capture_output=True,
        text=True, timeout=230,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("apart by "), ended.stdout
