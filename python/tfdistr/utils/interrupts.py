"""Ctrl-C that must wait: until a process is known and can be stopped, or an import or a trace is complete."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_get = ctypes.pythonapi.PyOS_getsig
_get.restype, _get.argtypes = ctypes.c_void_p, [ctypes.c_int]
_set = ctypes.pythonapi.PyOS_setsig
_set.restype, _set.argtypes = ctypes.c_void_p, [ctypes.c_int, ctypes.c_void_p]

_Hold = Callable[[], None]

# The signals that are held back now; a second one is delivered at once.
_held: list[int] = []


def holds_back() -> bool:
    """Return whether a SIGINT has arrived and is held back until another one."""
    return bool(_held)


class _Handler:
    """The handler of SIGINT in Python while something holds it back.

    An R session has a handler in C beside the one in Python, and ``signal.signal()`` always replaces both. A
    signal between this call and the return of R's handler would be lost: reticulate's handler in Python does
    nothing if R's has seen no signal. So this handler stays installed in an R session, and forwards signals
    that are not held back; only the handlers in C are exchanged, which takes no time.
    """

    def __init__(self) -> None:
        self._holds: list[_Hold] = []
        self._before: Any = None
        self._of_python: int | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self._holds:
            self._holds[-1]()
        elif callable(self._before):
            self._before(number, frame)

    def begin(self, hold: _Hold) -> None:
        """Call ``hold`` in place of the handlers."""
        self._holds.append(hold)
        try:
            installed: object = signal.getsignal(signal.SIGINT)
            if installed is self:
                _set(signal.SIGINT, self._of_python)
            else:
                self._before = signal.signal(signal.SIGINT, self)
                self._of_python = _get(signal.SIGINT)
            _take_what_came()
        except BaseException:  # an interrupt just before this handler is there
            self._forget(hold)
            raise

    def end(self, hold: _Hold, of_process: int | None) -> None:
        """End what ``begin()`` began; ``of_process`` is the handler in C of the time before."""
        _set(signal.SIGINT, of_process)
        _take_what_came()
        self._forget(hold)
        stays = of_process != self._of_python and callable(self._before)
        if not self._holds and not stays:
            before = signal.default_int_handler if self._before is None else self._before
            signal.signal(signal.SIGINT, before)
            _set(signal.SIGINT, of_process)

    def _forget(self, hold: _Hold) -> None:
        if hold in self._holds:
            self._holds.remove(hold)


def _take_what_came() -> None:
    """Deliver the signals so far: Python calls their handler when a function starts."""


_handler = _Handler()


@contextlib.contextmanager
def uninterrupted(*, once: bool = False) -> Iterator[None]:
    """Hold back SIGINT within the context; it is delivered at the end.

    Other threads than the main one are never interrupted.

    Args:
        once: Whether a second SIGINT is delivered at once. For code that may take long, or hang.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came = _held if once else []
    of_process: int | None = None
    holds = False

    def begin() -> None:
        nonlocal of_process, holds
        holds, of_process = True, _get(signal.SIGINT)
        _handler.begin(hold)

    def hold() -> None:
        came.append(signal.SIGINT)
        if once and len(came) > 1:
            let_come()

    def let_come() -> None:
        nonlocal holds
        if holds:
            holds = False
            _handler.end(hold, of_process)
        if came:
            came.clear()
            # Not a call of the handler in Python: that of reticulate does nothing if R has seen no signal.
            os.kill(os.getpid(), signal.SIGINT)

    begin()
    while came:  # in the moment before, so that R knows of it
        let_come()
        begin()
    try:
        yield
    finally:
        let_come()


def defer_sigint(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Return a function that calls an R function, and defers SIGINT until its end.

    An R interrupt outside of reticulate's handlers leaves Python's frames by a jump. After it, the next
    Python call crashes, or fails with "unknown opcode".
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
    """Import TensorFlow and Keras without interrupts, before other code of this session does."""
    import_whole("tensorflow")
    import_whole("keras")
    from tfdistr import tf_internals

    tf_internals.look_quietly()
