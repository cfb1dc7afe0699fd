"""TensorFlow's runtime on CPUs: its loops, kernels, and the devices of variables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.ops import control_flow_util_v2
from tensorflow.python.util import _pywrap_util_port

from tfdistr.tf_internals.keras_step import overridden

# The oneDNN pass replaces these only after their forward operations (TensorFlow's mkl_layout_pass.cc).
_DEPEND_ON_ORDER = {"MaxPoolGrad", "LRNGrad"}


@contextlib.contextmanager
def loop_of(step: Any) -> Iterator[None]:
    """Make a ``tf.while_loop`` keep ``step`` a function within the context, if that is faster.

    Otherwise TensorFlow puts the steps of a loop into the graph around it, which then has a cycle. A pass
    of TensorFlow replaces operations by operations of oneDNN. It walks through a graph with a cycle in an
    arbitrary order. If it reaches the gradient of a pooling before the pooling, it does not replace the
    gradient, which then takes many times as long. This happens in some runs, and then for the whole run. A
    function has no cycle, but its call also takes time.

    (``tf.while_loop`` reads ``_DISABLE_LOWER_USING_SWITCH_MERGE`` and has no argument for it.)

    Args:
        step: A ``ConcreteFunction``.
    """
    graph = step.graph.as_graph_def()
    nodes = [graph.node, *(function.node_def for function in graph.library.function)]
    with contextlib.ExitStack() as stack:
        if _DEPEND_ON_ORDER & {node.op for some in nodes for node in some}:
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
