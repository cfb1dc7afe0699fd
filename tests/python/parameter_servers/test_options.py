"""The options of parameter servers, and what their workers cannot do."""

import contextlib
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdistr
from tfdistr.errors import ArgumentError
from tfdistr.jobs.strategies import ParameterServer
from tfdistr.parameter_servers import feed
from tfdistr.parameter_servers.coordinator import _Chief, note_batch_normalization
from tfdistr.parameter_servers.gradients import GradientStep
from tfdistr.strategies.build import build
from tfdistr.training.job_arguments import make_job
from tfdistr.utils.function_files import FunctionByName

pytestmark = pytest.mark.timeout(240)

X = np.ones((97, 8), "float32")
Y = np.ones(97, "int32")


@pytest.mark.parametrize("ps", [-1, 0.5, True, "1", None])
def test_numbers_of_parameter_servers_that_are_refused(ps):
    with pytest.raises(ArgumentError, match="`ps` must be a whole number of at least 0"):
        tfdistr.local_cluster(2, ps=ps)


def test_data_that_cannot_be_had_on_workers_is_refused(tmp_path, monkeypatch):
    job = make_job(len, FunctionByName("data"), num_workers=2, strategy="parameter_server")
    with pytest.raises(ArgumentError, match="cannot be an R function"):
        ParameterServer().check_job(job)
    monkeypatch.setattr(feed, "LARGEST_JOB", 1000)
    with pytest.raises(ArgumentError, match="must be at most 1 GiB"):
        feed.describe_job(make_job(len, X, Y, num_workers=2), None, [4, None])


class AppliesTwice(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.layer = keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        return self.layer(x)

    def train_step(self, data: Any) -> dict[str, Any]:
        zeros = [tf.zeros(v.shape) for v in self.trainable_variables]
        self.optimizer.apply(zeros, self.trainable_variables)
        self.optimizer.apply(zeros, self.trainable_variables)
        return {}


def test_a_step_that_applies_gradients_twice_is_refused():
    model = AppliesTwice()
    model.compile("sgd", "mse")
    model.build((None, 8))
    rows = tf.constant(2.0)
    batch = SimpleNamespace(data=(X[:2], Y[:2]), rows=rows, all_rows=rows, worker=tf.constant(0))
    with pytest.raises(ArgumentError, match=r"AppliesTwice\.train_step\(\), which calls it 2 times"):
        GradientStep(model, "train")(batch, tf.constant(0))


class FitsAndEvaluates(keras.Sequential):
    def fit(self, *args: Any, **kwargs: Any) -> Any:
        return super().fit(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> Any:
        return super().evaluate(*args, **kwargs)


@pytest.mark.parametrize(
    ("validation", "received"),
    [(None, "FitsAndEvaluates.fit()"), ((X, Y), "FitsAndEvaluates.fit() and FitsAndEvaluates.evaluate()")],
)
def test_a_model_with_a_loop_of_its_own_is_refused(validation, received):
    def model() -> keras.Model:
        made = FitsAndEvaluates([keras.layers.Dense(1)])
        made.compile("sgd", "mse")
        return made

    job = make_job(model, X, Y, validation_data=validation, num_workers=2, strategy="parameter_server")
    config, strategy = SimpleNamespace(num_workers=2), SimpleNamespace(scope=contextlib.nullcontext)
    with pytest.raises(ArgumentError) as caught:
        _Chief(job, config, strategy, lambda *event: None, None)
    assert "a model cannot have its own training loop" in caught.value.message
    assert caught.value.received == received


@pytest.mark.parametrize(("split", "said"), [(True, 1), (False, 0)])
def test_a_masked_loss_of_a_share_is_told(caplog, split, said):
    model = keras.Sequential([keras.layers.Embedding(20, 4, mask_zero=True), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = tf.constant(2.0)
    data = tf.constant([[1, 2, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0]]), tf.zeros((2, 6, 1))
    build(model, tf.data.Dataset.from_tensors(data))
    batch = SimpleNamespace(data=data, rows=rows, all_rows=2 * rows, worker=tf.constant(0))
    GradientStep(model, "train", split=split)(batch, tf.constant(0))
    told = [record.getMessage() for record in caplog.records if record.name == "tfdistr"]
    assert len(told) == said
    assert all(line.startswith("A loss of the model has a mask, or is a mean over weights") for line in told)


def test_batch_normalization_on_shares_is_told(caplog):
    layers = [keras.layers.BatchNormalization(name="norm", synchronized=True), keras.layers.Dense(1)]
    note_batch_normalization(keras.Sequential(layers[1:]))
    assert not caplog.records
    note_batch_normalization(keras.Sequential(layers))
    (record,) = caplog.records
    assert record.getMessage().startswith("norm: each worker normalizes with the rows of its share")
