"""The check that the callbacks of all workers make the same calls that need all workers.

A worker that calls ``predict()`` in ``if tfdistr.is_chief():`` would wait for ever, because its peers have
moved on to the next step. So workers meet, in one small exchange, before each call of a callback that needs
all workers, and at the end of each hook that the user's callbacks have. Each says where it is.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable

import keras
import numpy as np
import tensorflow as tf
from keras.callbacks import Callback

from tfdistr.collectives.interface import Collectives
from tfdistr.errors import JobMismatchError

# Keras calls the hooks for batches of evaluate() and predict() on another thread.
_HOOKS = (
    *(f"on_{what}_{when}" for what in ("train", "epoch", "test", "predict") for when in ("begin", "end")),
    "on_train_batch_begin",
    "on_train_batch_end",
)


# Numbers that workers exchange when they meet. They always send as many, so that any two calls match.
_NUMBERS = 5


class SameCalls:
    """The places of the workers in their callbacks."""

    def __init__(self, collectives: Collectives) -> None:
        self._collectives = collectives
        self._running = 0

    @property
    def within_hook(self) -> bool:
        """Return whether a hook with the user's code is running."""
        return self._running > 0

    def record(self, callbacks: keras.callbacks.CallbackList, hooks: Iterable[str]) -> None:
        """Record when such hooks of a list of callbacks run: until they return or fail."""
        for hook in hooks:
            setattr(callbacks, hook, self._recorded(getattr(callbacks, hook)))

    def _recorded(self, call: Callable[..., None]) -> Callable[..., None]:
        def recorded(*args: object, **kwargs: object) -> None:
            self._running += 1
            try:
                call(*args, **kwargs)
            finally:
                self._running -= 1

        return recorded

    def end(self, hook: str, *numbers: int) -> np.ndarray:
        """Check that all workers are at the end of a hook; see ``meet``."""
        return self.meet(f"the end of {hook}()", *numbers)

    def before(self, call: str) -> None:
        """Check, if a hook runs, that the peers are about to make the same call."""
        if self.within_hook:
            self.meet(call)

    def meet(self, place: str, *numbers: int) -> np.ndarray:
        """Check that all workers are at the same place, and return the numbers of each, row by row."""
        own = np.zeros((self._collectives.num_workers, 1 + _NUMBERS), np.int64)
        own[self._collectives.index, : 1 + len(numbers)] = zlib.crc32(place.encode()), *numbers
        (total,) = self._collectives.all_reduce(tf.distribute.ReduceOp.SUM, [tf.constant(own)])
        table: np.ndarray = total.numpy()
        if (table[:, 0] != table[0, 0]).any():
            raise _different(self._collectives.exchange(place))
        return table[:, 1:]


def _different(places: Iterable[str]) -> JobMismatchError:
    return JobMismatchError(
        "The callbacks of the workers make different calls that need all workers.",
        received=", ".join(f"{place} on worker {worker}" for worker, place in enumerate(places)),
        fix="Make the call on every worker, without `if tfdistr.is_chief():`, and use its result on the "
        "chief. chief_only() is for callbacks that only read, write or print.",
    )


def hooks_of_user(callback: Callback) -> list[str]:
    """Return the hooks of a callback that are the user's code: Keras's make no call that needs all."""
    if _package(type(callback)) == "tfdistr":
        return []
    return [hook for hook in _HOOKS if hook in vars(callback) or _owner(type(callback), hook) != "keras"]


def _owner(kind: type, hook: str) -> str:
    return _package(next(cls for cls in kind.__mro__ if hook in vars(cls)))


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


class HookEnd(keras.callbacks.Callback):  # type: ignore[misc]
    """The last callback of a list. It calls ``at_hook(hook, *arguments)`` at the end of some hooks."""

    decides = False
    remembers = False

    def __init__(self, hooks: Iterable[str], at_hook: Callable[..., object]) -> None:
        super().__init__()
        for hook in hooks:
            setattr(self, hook, lambda *arguments, hook=hook, **_: at_hook(hook, *arguments))
