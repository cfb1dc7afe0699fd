"""Operations that would break the promise of virtual workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tfdistr.errors import ArgumentError

# Operations whose results no seed of Keras decides; TensorFlow's own names.
_RANDOM = {
    "RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "RandomShuffle",
    "RandomGamma", "RandomPoissonV2", "Multinomial", "ParameterizedTruncatedNormal", "StatefulUniform",
    "StatefulStandardNormalV2", "StatefulUniformFullInt", "StatefulUniformInt", "StatefulRandomBinomial",
    "StatefulTruncatedNormal",
}  # fmt: skip
_WRITES = ("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter", "ResourceStridedSliceAssign")


def check_operations(graph: tf.Graph) -> None:
    """Refuse operations in the graph of a share that would break the promise.

    Raises:
        ArgumentError: The step draws random numbers that do not depend on Keras's seeds, or it changes
            variables of TensorFlow.
    """
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
                "With virtual workers, a step may change only variables of Keras.",
                received=f"the operation {node.op} ({node.name})",
                fix="Make the variable with self.add_weight(trainable=False) or self.add_variable().",
            )


def random_operations(graph: tf.Graph) -> list[tuple[str, str]]:
    """The operations of a graph whose random numbers no seed of Keras decides, each with its name."""
    return [(node.op, node.name) for node in _nodes(graph) if node.op in _RANDOM]


def _nodes(graph: tf.Graph) -> Iterator[Any]:
    """The operations of a graph and of the functions that it calls."""
    definition = graph.as_graph_def()
    yield from definition.node
    for function in definition.library.function:
        yield from function.node_def
