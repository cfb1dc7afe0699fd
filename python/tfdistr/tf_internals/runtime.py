"""TensorFlow's runtime: its operations and kernels, its devices, and the coordination service."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf
from tensorflow.core.protobuf import error_codes_pb2 as _error_codes
from tensorflow.python.eager import context as _context
from tensorflow.python.framework import op_callbacks as _op_callbacks
from tensorflow.python.ops import control_flow_util_v2
from tensorflow.python.util import _pywrap_util_port

from tfdistr.tf_internals.keras_step import overridden
from tfdistr.tf_internals.pipelines import operations_in

# The oneDNN pass replaces these only after their forward operations (TensorFlow's mkl_layout_pass.cc).
_DEPEND_ON_ORDER = {"MaxPoolGrad", "LRNGrad"}


def traced_for_each_job(function: Any) -> None:
    """Keep TensorFlow from warning that a function is traced again: each job of a session has its own.

    (The warning counts the functions that one line of code makes, and has no public switch.)
    """
    function._omit_frequent_tracing_warning = True


@contextlib.contextmanager
def loop_of(step: Any) -> Iterator[None]:
    """Make a ``tf.while_loop`` keep ``step`` a function within the context, if that is faster.

    Otherwise TensorFlow puts the steps of a loop into the graph around it, which then has a cycle. A pass
    of TensorFlow replaces operations by operations of oneDNN. It walks through a graph with a cycle in an
    arbitrary order. If it reaches the gradient of a pooling before the pooling, it does not replace the
    gradient, which then takes many times as long. This happens in some runs, and then for the whole run. A
    function has no cycle, but its call also takes time.

    (``tf.while_loop`` reads ``_DISABLE_LOWER_USING_SWITCH_MERGE`` and has no argument for it.)
    """
    with contextlib.ExitStack() as stack:
        if _DEPEND_ON_ORDER & operations_in(step.graph.as_graph_def()):
            flag = "_DISABLE_LOWER_USING_SWITCH_MERGE"
            stack.enter_context(overridden(control_flow_util_v2, flag, True))
        yield


def onednn_is_on() -> bool:
    """Return whether TensorFlow uses its oneDNN kernels.

    (``IsMklEnabled``, which TensorFlow's own tests ask. A public function tells only with what TensorFlow was
    built, not what TF_ENABLE_ONEDNN_OPTS and the processor have made of it.)
    """
    return bool(_pywrap_util_port.IsMklEnabled())


def device_of(variable: Any) -> str:
    """Return the full name of the device of a Keras or TensorFlow variable.

    (``Variable.value`` gives a tensor where Keras casts to 16 bits; ``Variable._value`` never does.)
    """
    return str((variable._value if isinstance(variable, keras.Variable) else variable).device)


def make_again(variable: keras.Variable) -> None:
    """Replace the TensorFlow variable inside a Keras variable by a new one.

    Keras cannot choose the device of a variable, and TensorFlow cannot move a variable.
    """
    value: tf.Variable = variable._value
    variable._value = tf.Variable(
        value.read_value(), dtype=value.dtype, trainable=value.trainable, name=variable.name
    )


#: A field of the service's configuration from TensorFlow 2.19. Version 2.18 has no such barrier.
_REGISTER_WITH_BARRIER = "cluster_register_with_barrier"


def configure_coordination(
    jobs: dict[str, int], *, leader: str, register_timeout: float, heartbeat_timeout: float
) -> None:
    """Set up the coordination service so that it names a missing peer and does not wait forever.

    If the service is not configured, the strategy configures it, with a limit of one hour and without the
    barrier that names missing tasks. There is no public way to pass other values. (The jobs are added to the
    message itself: the module of its classes is ``tensorflow.tsl.protobuf`` in TensorFlow 2.18, and
    ``tensorflow.compiler.xla.tsl.protobuf`` from 2.19.)
    """
    context = _context.context()
    context.configure_coordination_service(
        service_type="standalone",
        service_leader=leader,
        cluster_register_timeout_in_ms=int(register_timeout * 1000),
        heartbeat_timeout_in_ms=int(heartbeat_timeout * 1000),
    )
    config = context.coordination_service
    for job, tasks in jobs.items():
        config.coordinated_job_list.add(name=job, num_tasks=tasks)
    if _REGISTER_WITH_BARRIER in config.DESCRIPTOR.fields_by_name:
        setattr(config, _REGISTER_WITH_BARRIER, True)


def take_back_sigterm() -> None:
    """Restore Python's action for SIGTERM, by default the end of the process.

    With the coordination service TensorFlow records the signal (PreemptionNotifier) and the process
    continues, so ``kill`` and schedulers would stop no worker. There is no option against it.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def is_part_of(graph: Any, whole: Any) -> bool:
    """Return whether a graph is ``whole`` or that of a branch or a loop in it; None stands for eager mode.

    (``FuncGraph.outer_graph`` and ``is_control_flow_graph`` have no public names.)
    """
    while graph is not whole and getattr(graph, "is_control_flow_graph", False):
        graph = graph.outer_graph
    return bool(graph is whole)


def context_initialized() -> bool:
    """Return whether TensorFlow has started its devices. After that, no server can be configured."""
    return _context.context()._context_handle is not None


def wait_at_barrier(name: str, timeout: float) -> None:
    """Wait until every task of the cluster is at the barrier ``name`` (each name is used once)."""
    _context.context().wait_at_barrier(name, int(timeout * 1000))


def report_error(message: str) -> None:
    """Make every peer's next collective fail with ``message``, even if this process continues."""
    _context.context().report_error_to_cluster(_error_codes.ABORTED, message)


def abort_collectives(message: str) -> None:
    """Make the current and all later collectives of this process fail with ``message``.

    Unlike ``report_error`` it needs no other process. The host of the coordination service may be lost.
    """
    _context.context().abort_collective_ops(_error_codes.ABORTED, message)


def failed_tasks(jobs: dict[str, int]) -> list[str]:
    """Return the coordination service's reports of failed or lost tasks; empty if there are none."""
    states = _context.context().get_task_states(list(jobs.items()))
    return [str(getattr(state, "message", state)) for state in states if state is not None]


def set_key(key: str, value: str) -> None:
    """Store a value in the coordination service. Every task can read it."""
    _context.context().set_config_key_value(key, value)


def delete_key(key: str) -> None:
    """Remove a value from the coordination service, so that the key can be set again."""
    _context.context().delete_config_key_value(key)


def get_key(key: str, timeout: float) -> str:
    """Read a value from the coordination service. Wait for it up to ``timeout`` seconds."""
    return str(_context.context().get_config_key_value(key, int(timeout * 1000)))


# NVIDIA's driver, and that of WSL.
_DRIVERS = ("/proc/driver/nvidia", "/dev/nvidiactl", "/dev/dxg")
_LINE = b"failed call to cuInit"


def look_quietly() -> None:
    """Have TensorFlow look for GPUs now where there is no driver, without its line about an error.

    The line, "failed call to cuInit", is written to standard error as an error, once, when TensorFlow first
    looks. Only a log level that hides all errors would hide it.
    """
    if not any(map(os.path.exists, _DRIVERS)):
        with _without_line():
            tf.config.list_physical_devices("GPU")


@contextlib.contextmanager
def _without_line() -> Iterator[None]:
    """Write the standard error of this process after the context, without the line."""
    try:
        before = os.dup(2)
    except OSError:  # closed
        yield
        return
    with tempfile.TemporaryFile() as held:
        if sys.stderr is not None:
            sys.stderr.flush()
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(before, 2)
            os.close(before)
            held.seek(0)
            for line in held:
                if _LINE not in line:
                    os.write(2, line)


@contextlib.contextmanager
def on_eager_operation(seen: Callable[[str, Sequence[Any], Sequence[Any]], None]) -> Iterator[None]:
    """Call ``seen`` with the type, the inputs and the outputs of each operation, within the context.

    The public ``enable_check_numerics`` raises an error at the first NaN, also if it is in the inputs, and
    knows no layers. It uses the same callbacks, which have no public name.
    """

    def callback(
        op_type: str, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None
    ) -> None:
        if graph is None:
            seen(op_type, inputs, outputs)

    _op_callbacks.add_op_callback(callback)
    try:
        yield
    finally:
        _op_callbacks.remove_op_callback(callback)
