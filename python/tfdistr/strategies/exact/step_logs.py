"""The logs that a training or test step returns."""

from __future__ import annotations

from typing import Any


def flat_logs(logs: Any) -> Any:
    """Sort logs by name, and replace a dictionary among them by its entries, as Keras does for callbacks.

    The logs ``{m.name: m.result() for m in self.metrics}`` have such a dictionary: the ``result()`` of all
    metrics of ``compile()``. Keras compares the logs with the values of all metrics before it flattens them,
    and then keeps those of the last step. On several workers these are the values of one worker, so logs of
    a step must be flat.

    Args:
        logs: The logs; what is no dictionary is returned unchanged.
    """
    if not isinstance(logs, dict):
        return logs
    flat: dict[str, Any] = {}
    for name, value in sorted(logs.items()):
        flat |= flat_logs(value) if isinstance(value, dict) else {name: value}
    return flat
