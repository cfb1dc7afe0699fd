"""Gradients that the tapes of a user's step give. (tests/equality has more steps.)"""

import json
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from clusters import run_well

import tfdistr

pytestmark = pytest.mark.timeout(300)


class Clipped(keras.Model):
    """Clips the rows of an embedding by their norm, in which a word that occurs twice has two rows."""

    def train_step(self, data: Any) -> dict[str, Any]:
        weights = self.trainable_weights
        with tf.GradientTape() as tape:
            loss = self.compute_loss(data[0], data[1], self(data[0], training=True))
        clipped, norm = tf.clip_by_global_norm(tape.gradient(loss, weights), 0.1)
        self.optimizer.apply(clipped, weights)
        return {"norm": norm}


def of_words() -> keras.Model:
    words = keras.Input((2,), dtype="int32")
    embedded = keras.layers.Embedding(4, 3, embeddings_initializer="ones")(words)
    model = Clipped(words, keras.layers.GlobalAveragePooling1D()(embedded))
    model.compile("sgd", "mse")
    return model


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    file = tmp_path_factory.mktemp("tapes") / "found.json"
    run_well("tapes.py", 1, [str(file)], timeout=250)
    return json.loads(file.read_text())


@pytest.mark.parametrize("kind", ["Vectors", "Clipped", "Sparse", "Private", "OwnFunction"])
def test_two_devices_train_as_one_does(found, kind):
    assert found["two devices"][kind] < 1e-6


@pytest.mark.parametrize("kind", ["Vectors", "Clipped", "Sparse", "Private", "OwnFunction"])
def test_virtual_workers_train_as_one_worker_does(found, kind):
    assert found["virtual"][kind] < 1e-6


def test_virtual_workers_that_run_eagerly_add_up_the_rows_of_a_vector(found):
    assert found["virtual, eagerly"] < 1e-6


@pytest.mark.parametrize(
    ("replicas", "place"),
    [("two devices", "a tf.function"), ("virtual", "a tf.function"), ("branch", "a branch or a loop")],
)
def test_gradients_of_the_whole_batch_and_of_some_rows_cannot_be_mixed(found, replicas, place):
    what, received, fix = found["mixed"][replicas].splitlines()
    assert what.startswith("Cannot combine the gradients of a weight: some are those of the whole batch, and")
    assert received.startswith("Received: gradients of ")
    assert received.endswith(f"/kernel, some from train_step() itself and some from {place} in it")
    assert fix == f"Fix: Take all of them with tape.gradient() in train_step() itself, and none in {place}."


def test_the_rows_of_embeddings_are_those_of_one_worker():
    words, wanted = np.array([[1, 1], [1, 2], [1, 1], [3, 1]]), np.zeros((4, 3), "float32")
    given = {"batch_size": 4, "epochs": 2, "seed": 1, "shuffle": False, "verbose": 0}
    alone, together = (
        tfdistr.distributed_fit(of_words, words, wanted, cluster=cluster, **given)
        for cluster in (None, tfdistr.local_cluster(2))
    )
    assert together.history["norm"] == pytest.approx(alone.history["norm"], rel=1e-6)
    np.testing.assert_allclose(together.model.get_weights()[0], alone.model.get_weights()[0], atol=1e-7)
