"""Python functions of one process that a graph from another process calls."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context as _context
from tensorflow.python.eager.polymorphic_function import atomic_function as _atomic_function
from tensorflow.python.ops import resource_variable_ops as _resource_variable_ops
from tensorflow.python.ops import script_ops as _script_ops

# Objects of these classes contact the servers when they are deleted.
_HELD_BY_SERVERS = (
    _atomic_function.AtomicFunction,
    _resource_variable_ops.EagerResourceDeleter,
    tf.distribute.coordinator.ClusterCoordinator,
)

_offered: dict[str, Callable[..., object]] = {}


def offer(name: str, function: Callable[..., object]) -> None:
    """Let graphs that run on a server of this process call ``function`` by ``name``.

    ``tf.numpy_function`` registers a function under a generated name, in the process that makes the graph.
    There is no public way to use a name that another process knows (``FuncRegistry._funcs``).
    """
    _offered[name] = function  # TensorFlow does not keep the function alive
    _script_ops._py_funcs._funcs[name] = function


def call(name: str, arguments: Sequence[object], types: Sequence[tf.DType]) -> list[Any]:
    """Call, in a graph, the function that the process which runs the graph has offered as ``name``."""
    # On the CPU of the caller's device.
    with tf.device("CPU:0"):
        return list(tf.raw_ops.PyFunc(input=list(arguments), token=name, Tout=list(types)))


def schedule(coordinator: tf.distribute.coordinator.ClusterCoordinator, function: Callable[[], None]) -> None:
    """Let a coordinator call a Python function, on the thread and under the device of a free worker.

    ``ClusterCoordinator.schedule`` takes only graphs, and does not report when a graph ends, or which graph.
    The function below it (``Cluster.schedule``) takes any function, and handles its failures in the same way.
    """
    coordinator._cluster.schedule(function, args=None, kwargs=None)


def forget_servers() -> None:
    """Make this process the only process of its cluster, because the others will exit.

    Keras's ``fit``, ``evaluate`` and ``predict`` end with a call that waits for all servers of the context.
    """
    context = _context.context()
    definition = type(context.get_server_def())()
    definition.CopyFrom(context.get_server_def())
    alone = [job for job in definition.cluster.job if job.name == definition.job_name]
    tasks = {definition.task_index: alone[0].tasks[definition.task_index]}
    del definition.cluster.job[:]
    definition.cluster.job.add(name=definition.job_name, tasks=tasks)
    context.update_server_def(definition)


def keep_forever() -> None:
    """Keep all objects that have a part on the servers until the process exits.

    When a function, a variable or the context is deleted, TensorFlow notifies the servers. It waits for all
    answers, without a limit, and blocks the interpreter. If a server is stopped, this process would hang in
    Python's garbage collection, at the latest at exit.
    """
    held = [one for one in gc.get_objects() if issubclass(type(one), _HELD_BY_SERVERS)]
    # This reference has no owner, so it is never released.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object([_context.context(), *held]))
