"""The operations in the graph of a share: random numbers and changes of variables that it must not have."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import ArgumentError

# Operations whose results no Keras seed decides; TensorFlow's own names.
_RANDOM = {
    "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "RandomShuffle",
    "RandomGamma", "RandomPoissonV2", "Multinomial", "ParameterizedTruncatedNormal", "StatefulUniform",
    "StatefulStandardNormalV2", "StatefulUniformFullInt", "StatefulUniformInt", "StatefulRandomBinomial",
    "StatefulTruncatedNormal",
}  # fmt: skip
_WRITES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter", "ResourceStridedSliceAssign")


def check_operations(graph: tf.Graph) -> None:
    """Refuse operations in the graph of a share that would make results differ."""
    for node in _nodes(graph):
        if node.op in _RANDOM:
            raise ArgumentError(
                "With virtual workers, random numbers must depend on the seed, the step and the virtual "
                "worker.",
                received=f"the operation {node.op} ({node.name})",
                fix="Use keras.random with a keras.random.SeedGenerator instead of tf.random.",
            )
        if node.op.startswith(_WRITES):
            raise ArgumentError(
                "With virtual workers, a step may change only Keras variables.",
                received=f"the operation {node.op} ({node.name})",
                fix="Make the variable with self.add_weight(trainable=False) or self.add_variable().",
            )


def random_operations(graph: tf.Graph) -> list[tuple[str, str]]:
    """Return the operations of a graph whose random numbers no Keras seed decides, each with its name."""
    return [(node.op, node.name) for node in _nodes(graph) if node.op in _RANDOM]


def _nodes(graph: tf.Graph) -> Iterator[Any]:
    """Return the operations of a graph and of the functions that it calls."""
    return itertools.chain.from_iterable(tf_internals.node_lists(graph.as_graph_def()))
