"""What Keras's ``TensorBoard`` callback keeps to itself."""

from __future__ import annotations

import keras

# Whether a trace or the profiler runs in this process. In another process they do not run, and the callback
# would fail when it ends them.
TRACE_IN_PROCESS = frozenset({"_is_tracing", "_profiler_started"})


def flush_events(callback: keras.callbacks.TensorBoard) -> None:
    """Write the events that TensorFlow keeps for up to two minutes. The callback has no method for it."""
    for writer in callback._writers.values():
        writer.flush()
