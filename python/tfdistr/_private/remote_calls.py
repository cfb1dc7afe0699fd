"""Python functions of one process that a graph calls which another process has made."""

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

# What tells servers when it is deleted.
_HELD_BY_SERVERS = (
    _atomic_function.AtomicFunction,
    _resource_variable_ops.EagerResourceDeleter,
    tf.distribute.coordinator.ClusterCoordinator,
)

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


def forget_servers() -> None:
    """Have this process be the only one of its cluster: the others are about to end.

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


def keep_for_ever() -> None:
    """Keep all that servers hold a part of, until the process has ended.

    Where a function, a variable or the context itself is deleted, TensorFlow tells the servers. It waits for
    all answers, without a limit, and keeps the interpreter from running: a server that is halted would have
    this process hang where Python collects garbage, and at its end at the latest.
    """
    held = [one for one in gc.get_objects() if issubclass(type(one), _HELD_BY_SERVERS)]
    # A reference that nobody owns, so that nobody gives it up.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object([_context.context(), *held]))
