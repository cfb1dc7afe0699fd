"""A table of embeddings in parts: what it gives, and that it can be saved."""

import keras
import numpy as np
import pytest

from tfdistr.errors import ArgumentError
from tfdistr.parameter_servers.embedding import PartitionedEmbedding

INDICES = np.array([[0, 3, 4, 9], [6, 7, 8, 0]])


@pytest.mark.parametrize("initializer", ["uniform", keras.initializers.RandomNormal(seed=1)])
def test_the_parts_are_the_rows_of_one_table(initializer):
    layer = PartitionedEmbedding(10, 3, min_shard_bytes=1, max_shards=3, embeddings_initializer=initializer)
    found = layer(INDICES)
    assert [weight.shape for weight in layer.weights] == [(4, 3), (3, 3), (3, 3)]
    table = np.concatenate([weight.numpy() for weight in layer.weights])
    np.testing.assert_array_equal(found, table[INDICES])
    assert len(np.unique(table)) == table.size


@pytest.mark.parametrize(("min_shard_bytes", "max_shards", "parts"), [(60, 8, 2), (999, 8, 1), (1, 20, 10)])
def test_how_many_parts(min_shard_bytes, max_shards, parts):
    layer = PartitionedEmbedding(10, 3, min_shard_bytes=min_shard_bytes, max_shards=max_shards)
    layer.build()
    assert len(layer.weights) == parts


def test_it_learns_hides_and_is_saved(tmp_path):
    layer = PartitionedEmbedding(10, 3, min_shard_bytes=1, max_shards=4, mask_zero=True,
                                 embeddings_regularizer="l2")  # fmt: skip
    model = keras.Sequential([
        keras.Input((4,), dtype="int32"), layer, keras.layers.GlobalAveragePooling1D(),
    ])  # fmt: skip
    model.compile("adam", "mse")
    before = np.concatenate([weight.numpy() for weight in layer.weights])
    model.fit(INDICES, np.ones((2, 3)), verbose=0)
    after = np.concatenate([weight.numpy() for weight in layer.weights])
    assert (before[9] != after[9]).all()
    pooled = [after[row[row > 0]].mean(0) for row in INDICES]
    np.testing.assert_allclose(model.predict(INDICES, verbose=0), pooled, rtol=1e-5)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again(INDICES), model(INDICES))


@pytest.mark.parametrize("name", ["input_dim", "output_dim", "min_shard_bytes", "max_shards"])
def test_numbers_are_checked(name):
    numbers = {"input_dim": 10, "output_dim": 3, "min_shard_bytes": 1, "max_shards": 1}
    with pytest.raises(ArgumentError, match=f"`{name}` must be a whole number of at least 1"):
        PartitionedEmbedding(**numbers | {name: 0})
