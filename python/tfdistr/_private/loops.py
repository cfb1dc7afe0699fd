"""How TensorFlow runs a loop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tensorflow.python.ops import control_flow_util_v2

from tfdistr._private.keras_step import overridden

# The pass for oneDNN replaces these if it has replaced what they belong to (TensorFlow's mkl_layout_pass.cc).
_DEPEND_ON_ORDER = {"MaxPoolGrad", "LRNGrad"}


@contextlib.contextmanager
def loop_of(step: Any) -> Iterator[None]:
    """Within the context a ``tf.while_loop`` that calls ``step`` keeps it a function, where that is faster.

    TensorFlow otherwise puts the steps of a loop into the graph around it, which then has a cycle. Its pass
    that replaces operations by those of oneDNN walks through such a graph in an arbitrary order. The gradient
    of a pooling that it comes to before the pooling itself stays as it is and takes many times as long: now
    and then, and then for the whole run. A function has no cycle, but its call takes time, too.

    (``_DISABLE_LOWER_USING_SWITCH_MERGE`` is what ``tf.while_loop`` asks; it has no argument for it.)

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
