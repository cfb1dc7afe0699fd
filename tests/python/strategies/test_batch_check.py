"""The check of the first batch: what several workers cannot compute as one worker does, it warns of."""

import json
import re
import warnings
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from clusters import run_cluster, run_well
from resumed import OwnFit

import tfdistr

pytestmark = pytest.mark.timeout(300)

NOT_FINITE = "not finite"
#: What a warning says of a model that cannot be split.
WARNED = {
    "sum in a layer": "because the layer 'sum_loss' adds a loss that is a sum over the rows, and workers",
    "sum in compute_loss": "because the loss is a sum over the rows, and workers weight their losses as",
    "mean before zeros": "because the layer 'centred' uses several rows",
    "hard examples": "because train_step() uses several rows",
    "moving codes": "the variable codes/codes differs",
    "counted rows": "the variable rows/rows differs",
    "the largest as a log": "the log largest differs",
    "one number": "the metric variable largest/value differs",
    "predictions": "predict_step() of Relative uses several rows of a batch at once",
    NOT_FINITE: "the gradient is not finite",
}
#: What a line says of a model that is made exact, or that is not checked.
NOTED = {
    "sum, random": "sum_of_rows: computed with the rows of all workers",
    "triplets": "triplets: computed",
    "Dice": "dice: computed",
    "a function as a metric": "correlation: computed",
    "the largest": "largest: computed",
    "an own dropout": "it draws numbers by TensorFlow's seeds. Draw with a keras.random.SeedGenerator.",
    "a loss that no test uses": "contrastive: computed with the rows of all workers",
    "no update": "no optimizer changes weights in its first 8 steps",
    "a number of rows": "a step on its first rows raised InvalidArgumentError",
    "slow": "a step on 16 rows takes too long",
    "unreadable": "its data cannot be read: no such file",
    "read once": "Python code yields its data, which cannot be read twice",
    "no rows": "the first batch has too few rows",
    "eager": "it runs eagerly",
    "large": "its weights are too large to be copied",
    "a failing step": "a step on its first rows raised ValueError: the first step",
}
FINE = {
    "rows by a class, sum", "mean", "gathered", "sampling", "a counter of steps", "regularizers", "logs",
    "accumulated", "clipped gradients", "a learning rate",
}  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> dict[str, Any]:
    file = tmp_path_factory.mktemp("check") / "told.json"
    run_well("batch_check.py", 2, *[[str(file), "0"]] * 2, timeout=250)
    return json.loads(file.read_text())


@pytest.mark.parametrize("name", WARNED)
def test_it_warns_of(told, name):
    [[message, category]] = told[name]["warnings"]
    assert category == "batch_loss"
    assert WARNED[name] in message
    if name not in (NOT_FINITE, "predictions"):
        ways_out = ["Return the mean"] if "sum" in name else ["tfdistr.gather()", "tape.gradient()"]
        ways_out += ["virtual_workers", "BatchLossWarning"]
        assert [part for part in ways_out if part not in message] == []


@pytest.mark.parametrize("name", NOTED)
def test_a_line_says(told, name):
    [[message, category]] = told[name]["warnings"]
    assert category == "note"
    assert NOTED[name] in message


@pytest.mark.parametrize("name", sorted(FINE))
def test_it_does_not_warn_of(told, name):
    assert told[name]["warnings"] == []


def test_it_changes_nothing(told):
    assert told.pop("decided") == [0]  # what the training was traced with
    assert set(told) == {*WARNED, *NOTED, *FINE}
    assert [name for name in told if told[name]["changed"]] == []


@pytest.mark.slow(reason="the same models, by virtual workers of one process")
def test_virtual_workers_are_checked_as_well(tmp_path):
    file = tmp_path / "told.json"
    run_well("batch_check.py", 1, [str(file), "2"], timeout=250)
    told = json.loads(file.read_text())
    assert told.pop("decided") == [0]
    assert {name for name in told if any(kind == "batch_loss" for _, kind in told[name]["warnings"])} == {
        "sum in a layer", "sum in compute_loss", "mean before zeros", "hard examples", "moving codes",
        "counted rows", "the largest as a log", "predictions", NOT_FINITE,
    }  # fmt: skip
    assert [name for name in told if told[name]["changed"]] == []


class Centred(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs - keras.ops.mean(inputs, 0)


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), Centred()])
    made.compile("sgd", "mse")
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
    with pytest.warns(tfdistr.BatchLossWarning, match="the layer 'centred' uses several rows") as given:
        fit(x, y)
    assert len(given) == 1


def test_a_model_with_a_fit_of_its_own_is_checked():
    def own() -> keras.Model:
        made = OwnFit([keras.Input((3,)), keras.layers.Dense(2), Centred()])
        made.compile("sgd", "mse")
        return made

    with pytest.warns(tfdistr.BatchLossWarning, match="the layer 'centred' uses several rows"):
        result = tfdistr.distributed_fit(
            own, X, Y, cluster=tfdistr.local_cluster(2), batch_size=6, seed=1, verbose=0
        )
    [difference] = result.params["differences"]
    assert "the layer 'centred' uses several rows of a batch at once, and a worker has only" in difference


class Noise(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        shape = keras.ops.shape(inputs)
        return inputs + keras.random.normal(shape) + tf.random.normal(shape)  # by the seeds of the libraries


def test_the_result_says_which_layers_draw_random_numbers():
    def with_dropout() -> keras.Model:
        parts = [keras.layers.Reshape((3, 1)), keras.layers.LSTM(3), keras.layers.Dropout(0.5), Noise()]
        made = keras.Sequential([keras.Input((3,)), *parts, keras.layers.Dense(2)])
        made.compile("sgd", "mse")
        return made

    for workers in (1, 2):
        result = tfdistr.distributed_fit(
            with_dropout, X, Y, cluster=tfdistr.local_cluster(workers), batch_size=6, seed=1, verbose=0
        )
        if workers == 1:
            assert result.params["differences"] == []
    same, drawing = result.params["differences"]
    assert drawing == "each worker draws its own random numbers in dropout, noise"  # not the LSTM's generator
    assert re.fullmatch(
        r"all workers draw the same random numbers in RandomStandardNormal \(.*noise.*\)", same
    )


def test_a_filter_for_the_class_says_that_one_knows():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", tfdistr.BatchLossWarning)
        fit()


def test_one_worker_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error", tfdistr.TfdistrWarning)
        fit(cluster=None)


@pytest.mark.parametrize("data", ["dataset", "PyDataset"])
def test_keras_fit_warns_on_the_chief(tmp_path, data):
    ended = run_cluster("batch_loss.py", 2, *[[str(tmp_path / "weights.npy"), "centred", data]] * 2)
    for index, worker in enumerate(ended):
        assert worker.status == 0, worker.output[-3000:]
        assert ("BatchLossWarning: The result on several workers" in worker.output) == (index == 0)


@pytest.mark.parametrize("data", ["dataset", "PyDataset"])
def test_a_loss_over_the_batch_gets_the_rows_of_all_workers(tmp_path, data):
    files = [tmp_path / f"{workers}.npy" for workers in (1, 2)]
    for workers, file in enumerate(files, 1):
        ended = run_well("batch_loss.py", workers, *[[str(file), "batch_loss", data]] * workers)
        said = ["batch_loss: computed with the rows of all workers" in worker.output for worker in ended]
        assert said == [workers > 1, False][:workers]
    one, two = map(np.load, files)
    np.testing.assert_allclose(two, one, atol=1e-5)  # the sum of the losses of 4 rows is large


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
