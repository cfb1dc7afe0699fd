"""The check of the first batch: what several workers cannot compute as one worker does, it warns of."""

import json
import warnings
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from clusters import run_cluster

import tfdistr

pytestmark = pytest.mark.timeout(300)

NOT_FINITE = "not finite"
WARNED = {
    "contrastive": "the loss 'contrastive'",
    "sum": "the loss 'sum_of_rows'",
    "sum, random": "the loss 'sum_of_rows'",
    "sum in a layer": "the layer 'sum_loss'",
    "clipped gradients": "train_step()",
    "mean in a layer": "the loss 'of_each_row'",
    NOT_FINITE: "the loss 'not_finite'",
}
FINE = {
    "rows", "rows by a class, sum", "mean", "gathered", "a plain step", "sampling", "a counter of TensorFlow",
    "regularizers",
}  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("check") / "told.json"
    [ended] = run_cluster("batch_check.py", 1, [str(file)], timeout=200)
    assert ended.status == 0, ended.output[-3000:]
    return json.loads(file.read_text())


@pytest.mark.parametrize("name", WARNED)
def test_it_warns_of(told, name):
    [[message, category]] = told[name]["warnings"]
    assert category == "batch_loss"
    assert WARNED[name] in message
    ways_out = ["tfdistr.gather()", "global_clipnorm", "BatchLossWarning"]
    says = ["Cannot check", "the gradient is not finite"] if name == NOT_FINITE else ["is no mean", *ways_out]
    assert [part for part in says if part not in message] == []


@pytest.mark.parametrize("name", sorted(FINE))
def test_it_does_not_warn_of(told, name):
    assert told[name]["warnings"] == []


def test_it_changes_nothing(told):
    assert set(told) == {*WARNED, *FINE}
    assert [name for name in told if told[name]["changed"]] == []


def batch_loss(y_true: Any, y_pred: Any) -> Any:
    return keras.ops.sum(keras.ops.square(keras.ops.mean(y_pred - y_true, 0)))


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    made.compile("sgd", batch_loss)
    return made


X, Y = np.random.default_rng(0).normal(size=(12, 3)).astype("float32"), np.ones((12, 2), "float32")


def fit(x: Any = X, y: Any = Y, **arguments: Any) -> tfdistr.FitResult:
    given = {"cluster": tfdistr.local_cluster(2), "batch_size": 6, "seed": 1, "verbose": 0}
    return tfdistr.distributed_fit(model, x, y, **{**given, **arguments})


def dataset() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).shuffle(12)


@pytest.mark.parametrize("data", ["arrays", "a shuffled dataset"])
def test_a_job_warns_once_by_a_class_of_its_own(data):
    x, y = (X, Y) if data == "arrays" else (dataset, None)
    with pytest.warns(tfdistr.BatchLossWarning, match="'batch_loss' is no mean") as given:
        fit(x, y)
    assert len(given) == 1


def test_a_filter_for_the_class_says_that_one_knows():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", tfdistr.BatchLossWarning)
        fit()


def test_one_worker_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error", tfdistr.TfdistrWarning)
        fit(cluster=None)


def test_keras_fit_warns_on_the_chief(tmp_path):
    ended = run_cluster("batch_loss.py", 2, [str(tmp_path / "weights.npy"), "batch_loss", "dataset"])
    for index, worker in enumerate(ended):
        assert worker.status == 0, worker.output[-3000:]
        assert ("BatchLossWarning: The result on several workers" in worker.output) == (index == 0)


@pytest.mark.slow(reason="two workers for each form of data")
@pytest.mark.parametrize(("data", "mpi"), [("dataset", False), ("PyDataset", True)])
def test_the_check_leaves_the_data_and_the_random_numbers_of_the_chief(tmp_path, data, mpi):
    files = [tmp_path / f"{workers}.npy" for workers in (1, 2)]
    for workers, file in enumerate(files, 1):
        arguments = [str(file), "row_loss", data]
        for worker in run_cluster("batch_loss.py", workers, arguments, mpi=mpi and workers == 2, timeout=90):
            assert worker.status == 0, worker.output[-3000:]
            assert "BatchLossWarning" not in worker.output
    one, two = map(np.load, files)
    np.testing.assert_allclose(two, one, atol=1e-6)
