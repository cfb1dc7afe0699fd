"""TensorFlow's look for GPUs on a machine that has none."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator

import tensorflow as tf

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
