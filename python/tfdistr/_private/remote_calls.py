"""Python functions of one process that a graph calls which another process has made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import script_ops as _script_ops

_offered: dict[str, Callable[..., Any]] = {}


def offer(name: str, function: Callable[..., Any]) -> None:
    """Let graphs that run on a server of this process call ``function`` by ``name``.

    ``tf.numpy_function`` registers a function under a name of its own, in the process that makes the graph;
    there is no public way to register one under a name that another process knows (``FuncRegistry._funcs``).

    Args:
        name: A name that is the same in all processes.
        function: Takes and returns NumPy arrays.
    """
    _offered[name] = function  # which TensorFlow does not keep alive
    _script_ops._py_funcs._funcs[name] = function


def call(name: str, arguments: Sequence[Any], types: Sequence[tf.DType]) -> list[Any]:
    """Call, in a graph, what the process that runs it has offered as ``name``.

    Args:
        name: The name.
        arguments: Tensors.
        types: Types of the tensors that come back.
    """
    # On the device of the caller, and there on the CPU.
    with tf.device("CPU:0"):
        return list(tf.raw_ops.PyFunc(input=list(arguments), token=name, Tout=list(types)))


def schedule(coordinator: tf.distribute.coordinator.ClusterCoordinator, function: Callable[[], None]) -> None:
    """Have a coordinator call a Python function, on the thread and under the device of a worker that is free.

    ``ClusterCoordinator.schedule`` takes graphs alone and tells nobody when one of them has ended, nor which;
    what it is made of (``Cluster.schedule``) takes any function, and handles its failures in the same way.
    """
    coordinator._cluster.schedule(function, args=None, kwargs=None)
