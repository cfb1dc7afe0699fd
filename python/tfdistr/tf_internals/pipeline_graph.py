"""Changed copies of a ``tf.data`` pipeline: the seeds of its random parts, the files of its caches.

A pipeline is changed in its graph (``Dataset._as_serialized_graph``): no public function changes a dataset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tfdistr.tf_internals.pipelines import (
    deserialized_dataset,
    graph_of,
    node_lists,
    node_name,
    python_ops,
    walk_pipeline,
)

#: The first of the two inputs with seeds, for the ops that take them as inputs.
_SEEDS_AT = {
    "RandomDataset": 0, "RandomDatasetV2": 0, "ShuffleAndRepeatDataset": 2, "ShuffleAndRepeatDatasetV2": 2,
    "ShuffleDataset": 2, "ShuffleDatasetV3": 2,
}  # fmt: skip
_CACHES = frozenset({"CacheDataset", "CacheDatasetV2"})
_WORDS = {"Random": "sample_from_datasets() or random()", "Shuffle": "shuffle()"}


def unseeded_parts(dataset: tf.data.Dataset) -> list[str]:
    """Return the functions that have put random parts without a seed into a pipeline, also in its functions.

    This reads the Python objects of the pipeline: its graph would be a copy of all its data.
    """
    kinds = {node_name(node) for node in walk_pipeline(dataset) if _own_seeds(node) == (0, 0)}
    kinds |= {node.op for graph in _functions_of(dataset) for _, node, _ in _unseeded(graph)}
    return sorted({word for start, word in _WORDS.items() for kind in kinds if kind.startswith(start)})


def order_seeds(dataset: tf.data.Dataset) -> list[tuple[int, int]]:
    """Return the seeds of a pipeline that determine the order of its elements."""
    found = [_own_seeds(node) for node in walk_pipeline(dataset)]
    for graph in _functions_of(dataset):
        nodes = [node for body in node_lists(graph) for node in body if node.op == "RandomShuffle"]
        found += [(int(node.attr["seed"].i), int(node.attr["seed2"].i)) for node in nodes]
    return [seeds for seeds in found if seeds is not None]


def cache_files(dataset: tf.data.Dataset) -> list[str]:
    """Return the names of the files in which a pipeline caches elements."""
    caches = [node for node in walk_pipeline(dataset) if node_name(node) == "Cache"]
    names = [tf.get_static_value(node._filename) for node in caches]
    return [name.decode() for name in names if name]


def _own_seeds(node: tf.data.Dataset) -> tuple[int, int] | None:
    seeds = [tf.get_static_value(getattr(node, name, None)) for name in ("_seed", "_seed2")]
    return None if None in seeds else (int(seeds[0]), int(seeds[1]))


def _functions_of(dataset: tf.data.Dataset) -> Iterator[Any]:
    """Yield the graphs of the functions of a pipeline, such as that of a ``map``."""
    for node in walk_pipeline(dataset):
        for wrapper in node._functions():
            yield wrapper.function.graph.as_graph_def()


def rewritten(dataset: tf.data.Dataset, seed: int | None = None, suffix: str = "") -> tf.data.Dataset:
    """Return a pipeline whose random parts without a seed have seeds, which ``seed`` determines."""
    graph = graph_of(dataset)
    _new_seed_generators(graph)
    if seed is not None:
        for number, (nodes, node, consts) in enumerate(_unseeded(graph)):
            seeds = np.random.SeedSequence([seed, number]).generate_state(2) >> 1
            at = _SEEDS_AT[node.op]
            for place, (const, value) in enumerate(zip(consts, seeds, strict=True)):
                _give_input(nodes, node, at + place, const, np.int64(value))
    for nodes, node, name in _caches(graph) if suffix else ():
        _give_input(nodes, node, 1, name, _text_of(name) + suffix.encode())
    changed = deserialized_dataset(graph.SerializeToString(), dataset.element_spec)
    changed._tfdistr_source = dataset  # owns the Python functions and the variables of the graph
    return changed


def peek(dataset: tf.data.Dataset) -> Any | None:
    """Return the first element of a pipeline, read from a copy of it; None if Python code makes elements."""
    first = first_elements(dataset, 1)
    return first[0] if first else None


def first_elements(dataset: tf.data.Dataset, count: int) -> list[Any]:
    """Return the first elements of a pipeline, read from a copy of it; none if Python code makes elements.

    A copy would call this code, which may be a generator, once more.

    An iterator of the pipeline itself would change the order of a shuffle that depends on the iteration. So
    would a copy that shares the generator of its seeds; the copy here gets new ones. It writes no file of a
    cache, which another worker or iterator may be writing.
    """
    if python_ops(dataset):
        return []
    graph = graph_of(dataset)
    _new_seed_generators(graph)
    for nodes, node, name in _caches(graph):
        if not tf.io.gfile.exists(_text_of(name) + b".index"):  # it is not complete
            _give_input(nodes, node, 1, name, b"")
    return list(deserialized_dataset(graph.SerializeToString(), dataset.element_spec).take(count))


def _new_seed_generators(graph: Any) -> None:
    """Replace the generators of the seeds of a pipeline, which its original would share, by new ones."""
    nodes = {node.name: node for node in graph.node}
    random = [node for node in graph.node if "Shuffle" in node.op or node.op.startswith("RandomDataset")]
    for name in [part for node in random for part in node.input]:
        node = nodes[name.partition(":")[0].removeprefix("^")]
        if node.op == "Const" and node.attr["dtype"].type == tf.resource.as_datatype_enum:
            node.CopyFrom(type(node)(name=node.name, op="DummySeedGenerator"))


def _unseeded(graph: object) -> list[tuple[Any, Any, list[Any]]]:
    """Return the nodes without a seed: each with the list that has it, and the constants of its seeds."""
    found = []
    for nodes in node_lists(graph):
        by_name = {node.name: node for node in nodes}
        for node in list(nodes):
            at = _SEEDS_AT.get(node.op)
            if at is None:
                continue
            consts = [_const(by_name, node.input[at + place]) for place in range(2)]
            if all(c is not None and int(tf.make_ndarray(c.attr["value"].tensor)) == 0 for c in consts):
                found.append((nodes, node, consts))
    return found


def _caches(graph: object) -> list[tuple[Any, Any, Any]]:
    """Return the nodes that cache in files: each with the list that has it, and the constant of the name."""
    found = []
    for nodes in node_lists(graph):
        by_name = {node.name: node for node in nodes}
        for node in list(nodes):
            name = _const(by_name, node.input[1]) if node.op in _CACHES else None
            if name is not None and _text_of(name):
                found.append((nodes, node, name))
    return found


def _const(by_name: dict[str, Any], name: str) -> Any:
    node = by_name.get(name.partition(":")[0])  # of an argument of a function there is no node
    return node if node is not None and node.op == "Const" else None


def _text_of(const: Any) -> bytes:
    return bytes(tf.make_ndarray(const.attr["value"].tensor).item())


def _give_input(nodes: Any, node: Any, place: int, before: Any, value: Any) -> None:
    """Replace a constant input of a node. Other nodes may use the constant, which stays as it is."""
    new = nodes.add()
    new.CopyFrom(before)
    new.name = f"{node.name}/tfdistr_{place}"
    new.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    node.input[place] = new.name + "".join(node.input[place].partition(":")[1:])
