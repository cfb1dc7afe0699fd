"""The layer for a SavedModel, as docs/model.md shows it, trains as the layers that were saved would."""

import importlib

import keras
import numpy as np
import pytest
from doc_blocks import blocks
from paths import ROOT

import tfdistr

pytestmark = [pytest.mark.timeout(200), pytest.mark.slow(reason="trains six times")]

X = np.random.default_rng(0).normal(size=(45, 4)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int64")


def encoder():
    keras.utils.set_random_seed(3)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(5, "tanh"), keras.layers.Dense(5, "tanh")])


@pytest.fixture(scope="module")
def saved_layer(tmp_path_factory):
    """What makes the layer of the page, with the weights of ``encoder``."""
    folder = tmp_path_factory.mktemp("saved")
    (block,) = (b for b in blocks(ROOT / "docs" / "model.md") if "class SavedModel" in b.code)
    (folder / "saved_layer.py").write_text(block.code)
    encoder().export(folder / "encoder", verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        layer = importlib.import_module("saved_layer").SavedModel
        yield lambda **options: layer(str(folder / "encoder"), **options)


def trained(first, **options):
    """The weights, the losses and the number of trainable weights of a model that begins with a layer."""

    def model():
        last = keras.layers.Dense(2, kernel_initializer=keras.initializers.GlorotUniform(seed=1))
        network = keras.Sequential([keras.Input((4,)), first(), last])
        network.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return network

    fit = tfdistr.distributed_fit(model, X, Y, batch_size=16, epochs=2, seed=1, verbose=0, **options)
    return [*fit.model.get_weights(), np.array(fit.history["loss"])], len(fit.model.trainable_variables)


@pytest.mark.parametrize("trainable", [True, False])
def test_two_workers_train_it_as_one_process_trains_what_was_saved(saved_layer, trainable):
    def saved():
        return saved_layer(trainable=trainable)

    def original():
        layer = encoder()
        layer.trainable = trainable
        return layer

    expected, count = trained(original)
    assert count == (6 if trainable else 2)
    changed = [not np.array_equal(*pair) for pair in zip(expected, encoder().get_weights(), strict=False)]
    assert changed == [trainable] * 4
    two = tfdistr.local_cluster(workers=2)
    for options in ({}, {"cluster": two}):
        values, found = trained(saved, **options)
        assert found == count
        for value, other in zip(values, expected, strict=True):
            np.testing.assert_allclose(value, other, atol=1e-6, rtol=1e-6)


def test_its_copies_are_frozen_as_it_is(saved_layer):
    frozen = saved_layer(trainable=False)
    copied = type(frozen).from_config(frozen.get_config())
    assert (copied.trainable, copied.trainable_variables) == (False, [])
    copied.trainable = True
    assert len(copied.trainable_variables) == 4
