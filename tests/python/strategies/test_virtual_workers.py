"""Virtual workers: the same bits on any number of workers and cores, and what they refuse."""

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from clusters import PROGRAMS, run_commands, run_well
from slow import mostly_slow

import tfdistr
from tfdistr.utils.processes import usable_cores

pytestmark = pytest.mark.timeout(600)

rng = np.random.default_rng(0)
X = rng.normal(size=(203, 8, 8, 1)).astype("float32")
Y = (X.mean((1, 2, 3)) > 0).astype("int32")


def network() -> keras.Model:
    model = keras.Sequential([
        keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.MaxPooling2D(2),
        keras.layers.BatchNormalization(), keras.layers.Flatten(), keras.layers.Dropout(0.3),
        keras.layers.Dense(16, activation="relu", kernel_regularizer="l2"), keras.layers.Dense(2),
    ])  # fmt: skip
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
    return model


EXCHANGE = {"communication", "gradient_dtype"}  # options of the strategy


def bits(workers: int, cores: int | None = None, **arguments: Any) -> tuple[str, dict[str, list[float]]]:
    """The weights of a job, as a hash, and its history."""
    given = {
        "batch_size": 32, "epochs": 2, "seed": 1, "verbose": 0, "virtual_workers": 4,
        "validation_data": (X[:50], Y[:50]),
    }  # fmt: skip
    cluster = tfdistr.local_cluster(workers, cores_per_worker=cores)
    strategy = tfdistr.multi_worker_mirrored(**{n: arguments.pop(n) for n in EXCHANGE & arguments.keys()})
    fit = tfdistr.distributed_fit(network, X, Y, cluster=cluster, strategy=strategy, **{**given, **arguments})
    weights = b"".join(np.asarray(weight).tobytes() for weight in fit.model.get_weights())
    return hashlib.sha256(weights).hexdigest(), dict(fit.history)


@pytest.fixture(scope="module")
def of_one_worker():
    return bits(1, 1)


# Slow: trains on one to three workers again.
@pytest.mark.parametrize(
    ("workers", "communication"), mostly_slow([(2, "ring"), (3, "mpi")], quick=[(3, "mpi")])
)
def test_a_job_has_the_same_bits_on_any_number_of_workers(of_one_worker, workers, communication):
    assert bits(workers, communication=communication) == of_one_worker


@pytest.mark.skipif(len(usable_cores()) < 2, reason="needs two cores")
def test_and_on_any_number_of_cores(of_one_worker):
    assert bits(1, 2) == of_one_worker


@pytest.mark.slow(reason="trains on one to three workers again")
def test_gradients_of_16_bits_are_rounded_alike_everywhere():
    expected = bits(3, communication="ring", gradient_dtype="bfloat16")
    assert bits(2, gradient_dtype="bfloat16") == expected


@pytest.mark.slow(reason="trains on one to three workers again")
def test_a_run_goes_on_with_any_number_of_workers(tmp_path):
    plain = bits(1, epochs=3)
    for workers, epochs in ((3, 1), (1, 2), (2, 3)):
        found = bits(workers, epochs=epochs, run_dir=tmp_path, checkpoint_every=3, resume=True)
    assert found == plain


def test_a_model_that_one_worker_has_lost_hangs_nobody():
    run_well("two_models.py", 2, [], timeout=60)


REFUSED = {
    "fewer than workers": "must be at least the number of workers.*Received: virtual_workers=1, 2 workers",
    "more than examples": "must be at most the examples.*Received: virtual_workers=9, batch_size=8",
    "NCCL": 'NCCL does not guarantee.*communication="nccl"',
    "NCCL by the strategy": 'NCCL does not guarantee.*communication="nccl"',
    "not a number": "must be a whole number of at least 1.*Received: 'many'",
    "one device": "'one_device' cannot keep the promise.*virtual_workers=4",
    "parameter servers": "'parameter_server' cannot keep the promise.*virtual_workers=4",
    "model parallelism": "'model_parallel' cannot keep the promise.*virtual_workers=4",
    "random numbers of TensorFlow": "random numbers must depend on the seed.*RandomStandardNormal",
    "variables of TensorFlow": "only Keras variables.*AssignAddVariableOp",
    "weights changed by a layer": "only the model's optimizers may change its weights.*clipped/kernel",
    "an optimizer made in a step": "must be an attribute of the model.*of the class SGD",
    "weights read after the update, in eager mode": r"not with run_eagerly=True.*kernel after apply\(\)",
    "weights read after the update, in a branch": r"a TensorFlow loop or branch.*kernel after apply\(\)",
    "an update in a branch": r"can apply an optimizer in the step itself only.*optimizer 'sgd",
    "states of a recurrent layer": "cannot keep its states.*stateful=True of the layer 'gru",
    "a metric that does not add": "variables of metrics must be sums.*largest/value that is no addition",
    "an exchange in eager mode": "may exchange values between replicas.*run_eagerly",
    "a loop of one's own": "runs the steps of Keras's fit, evaluate and predict only.*lambda",
}


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict[str, Any]:
    file: Path = tmp_path_factory.mktemp("virtual") / "told.json"
    run_well("virtual.py", 1, [str(file)], timeout=200)
    return json.loads(file.read_text())


@pytest.mark.parametrize("what", REFUSED)
def test_what_breaks_the_promise_is_refused(told, what):
    assert told[what].startswith("ArgumentError: ")
    assert "Fix: " in told[what]
    assert re.search(REFUSED[what], told[what], re.DOTALL), told[what]


def test_what_is_in_the_program_is_tested_here(told):
    assert set(told) == {*REFUSED, "eager", "machines", "steps"}


def test_steps_that_change_weights_in_their_own_way_are_those_of_one_worker(told):
    assert {"two updates", "gan", "private_gradients"} <= set(told["steps"])
    assert {name: size for name, size in told["steps"].items() if not size < 2e-6} == {}


def test_models_that_run_eagerly_draw_by_virtual_worker(told):
    assert told["eager"]


def test_a_machine_that_rounds_in_another_way_is_named(told):
    [line] = told["machines"]
    assert line.startswith("Worker 1 (an older processor) rounds a test computation differently from most")


def test_a_process_with_more_threads_is_refused(tmp_path):
    file = tmp_path / "told.json"
    command = [sys.executable, str(PROGRAMS / "virtual.py"), str(file), "2 threads"]
    [ended] = run_commands([command], [{**os.environ, "TF_CONFIG": ""}], 120)
    assert ended.status == 0, ended.output[-3000:]
    told = json.loads(file.read_text())["threads"]
    assert "each TensorFlow operation must have one thread" in told
    assert "already runs, with 2 threads" in told
