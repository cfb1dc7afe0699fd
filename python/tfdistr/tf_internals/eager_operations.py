"""Each operation of eager TensorFlow, as it is computed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tensorflow.python.framework import op_callbacks as _op_callbacks


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
