"""Ctrl-C that must wait: for a process to be known, so that it can be ended; for an import to be whole."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import threading
from collections.abc import Iterator
from types import ModuleType

_get = ctypes.pythonapi.PyOS_getsig
_get.restype, _get.argtypes = ctypes.c_void_p, [ctypes.c_int]
_set = ctypes.pythonapi.PyOS_setsig
_set.restype, _set.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back SIGINT within the context; it comes at the end of it.

    Other threads than the main one are never interrupted.

    Example:
        >>> with uninterrupted():
        ...     process = subprocess.Popen(["sleep", "1"])
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = []
    # R has a handler of its own beside that of Python.
    of_process, of_python = _get(signal.SIGINT), signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *_: came.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, of_python or signal.default_int_handler)
        _set(signal.SIGINT, of_process)
        if came:
            os.kill(os.getpid(), signal.SIGINT)


def import_whole(name: str) -> ModuleType:
    """Import a module without interrupts: after half an import of TensorFlow, a process cannot import it."""
    with uninterrupted():
        return importlib.import_module(name)


def import_tensorflow() -> None:
    """Import TensorFlow and Keras without interrupts, before other code of this process does."""
    import_whole("tensorflow")
    import_whole("keras")
