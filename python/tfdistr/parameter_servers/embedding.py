"""A table of embeddings that is too large for one parameter server."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from tfdistr.utils.arguments import check_int


@keras.saving.register_keras_serializable("tfdistr")
class PartitionedEmbedding(keras.layers.Layer):  # type: ignore[misc]
    """An ``Embedding`` whose table is split into several weights, which parameter servers hold one by one.

    A step reads and updates only the rows of its batch, on the servers that hold them. The layer is the same
    in one process and with any number of servers: the split of the table depends only on the arguments.

    TensorFlow's ``variable_partitioner`` does not work with Keras 3. A variable that it has split has no
    ``handle``, by which the tape of a ``train_step`` finds a variable. Optimizers do not split the variables
    that they keep for it.

    Args:
        input_dim: Number of rows: the largest index plus 1.
        output_dim: Length of a row.
        min_shard_bytes: The least size of a part in bytes, as in ``MinSizePartitioner``.
        max_shards: The largest number of parts, for example the number of parameter servers.
        embeddings_initializer: The initializer of the table.
        embeddings_regularizer: The penalty for the table.
        mask_zero: Whether index 0 is hidden from the layers that follow.
        **kwargs: Other arguments of a layer.

    Raises:
        ArgumentError: A number is not whole, or below 1.

    Example:
        >>> layer = PartitionedEmbedding(1000, 16, min_shard_bytes=16_000, max_shards=4)
        >>> layer(np.array([[1, 999]])).shape, len(layer.weights)
        (TensorShape([1, 2, 16]), 4)
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        min_shard_bytes: int = 256 * 1024,
        max_shards: int = 1,
        embeddings_initializer: object = "uniform",
        embeddings_regularizer: object = None,
        mask_zero: bool = False,
        **kwargs: object,
    ) -> None:
        super().__init__(**kwargs)
        self.input_dim = check_int("input_dim", input_dim)
        self.output_dim = check_int("output_dim", output_dim)
        self.min_shard_bytes = check_int("min_shard_bytes", min_shard_bytes)
        self.max_shards = check_int("max_shards", max_shards)
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.embeddings_regularizer = keras.regularizers.get(embeddings_regularizer)
        self.mask_zero = mask_zero
        self.supports_masking = mask_zero
        self.parts: list[keras.Variable] = []

    def build(self, input_shape: object = None) -> None:
        """Make the parts of the table."""
        partitioner = tf.distribute.experimental.partitioners.MinSizePartitioner(
            self.min_shard_bytes, max_shards=self.max_shards
        )
        shape = tf.TensorShape([self.input_dim, self.output_dim])
        count = min(partitioner(shape, tf.as_dtype(self.variable_dtype))[0], self.input_dim)
        rows, longer = divmod(self.input_dim, count)  # as embedding_lookup() expects it
        for part in range(count):
            weight = self.add_weight(
                shape=(rows + (part < longer), self.output_dim),
                initializer=_for_part(self.embeddings_initializer, part),
                regularizer=self.embeddings_regularizer,
                name=f"embeddings_{part}",
                autocast=False,  # it would cast the whole table
            )
            self.parts.append(weight)

    def call(self, inputs: object) -> tf.Tensor:
        """Return the rows with these indices."""
        indices = tf.convert_to_tensor(inputs)
        if indices.dtype not in (tf.int32, tf.int64):
            indices = tf.cast(indices, tf.int32)
        found = tf.nn.embedding_lookup([part.value for part in self.parts], indices)
        return tf.cast(found, self.compute_dtype)

    def compute_mask(self, inputs: object, mask: object = None) -> object:
        """Return which indices are not hidden."""
        return keras.ops.not_equal(inputs, 0) if self.mask_zero else None

    def compute_output_shape(self, input_shape: Any) -> tuple[object, ...]:
        """Return the shape of the rows."""
        return (*input_shape, self.output_dim)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        own = {name: getattr(self, name) for name in ("input_dim", "output_dim", "min_shard_bytes",
                                                      "max_shards", "mask_zero")}  # fmt: skip
        own["embeddings_initializer"] = keras.initializers.serialize(self.embeddings_initializer)
        own["embeddings_regularizer"] = keras.regularizers.serialize(self.embeddings_regularizer)
        return {**super().get_config(), **own}


def _for_part(initializer: object, part: int) -> object:
    """Return the initializer of a part: with one seed, all parts would start with the same rows."""
    if part == 0 or not isinstance(initializer, keras.initializers.Initializer):
        return initializer
    config = initializer.get_config()
    if isinstance(config.get("seed"), int):
        config["seed"] += part
    return type(initializer).from_config(config)
