"""Ctrl-C that must wait: until a process is known, and can be ended; until an import or a trace is whole."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_get = ctypes.pythonapi.PyOS_getsig
_get.restype, _get.argtypes = ctypes.c_void_p, [ctypes.c_int]
_set = ctypes.pythonapi.PyOS_setsig
_set.restype, _set.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]


# What is held back in this moment, and comes at once if it comes again.
_held: list[int] = []


def holds_back() -> bool:
    """Return whether a SIGINT has come that is held back until another comes."""
    return bool(_held)


@contextlib.contextmanager
def uninterrupted(*, once: bool = False) -> Iterator[None]:
    """Hold back SIGINT within the context; it comes at the end of it.

    Other threads than the main one are never interrupted.

    Args:
        once: Whether a second SIGINT comes at once. For code that may take long, or hang.

    Example:
        >>> with uninterrupted():
        ...     process = subprocess.Popen(["sleep", "1"])
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = _held if once else []
    # R has a handler of its own beside that of Python.
    of_process, of_python = _get(signal.SIGINT), signal.getsignal(signal.SIGINT)

    def hold(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if once and len(came) > 1:
            let_come()

    def let_come() -> None:
        signal.signal(signal.SIGINT, of_python or signal.default_int_handler)
        _set(signal.SIGINT, of_process)
        if came:
            came.clear()
            # Not a call of the handler in Python: that of reticulate does nothing if R has seen no signal.
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        let_come()


def whole(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return a function that calls a function of R, and lets SIGINT wait until its end.

    An interrupt of R outside of reticulate's handlers leaves Python's frames by a jump. After it, the next
    call of Python crashes, or ends in "unknown opcode".

    Args:
        function: A function of the R package. Those of the user may take long, so SIGINT does not wait there.
    """

    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        with uninterrupted():
            return function(*args, **kwargs)

    return call


def import_whole(name: str) -> ModuleType:
    """Import a module without interrupts: after half an import of TensorFlow, a process cannot import it."""
    with uninterrupted():
        return importlib.import_module(name)


def import_tensorflow() -> None:
    """Import TensorFlow and Keras without interrupts, before other code of this process does."""
    import_whole("tensorflow")
    import_whole("keras")
