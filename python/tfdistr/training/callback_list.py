"""The callbacks of a training, as its loop calls them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from tfdistr.strategies.exact.step_logs import flat_logs

_Logs = Mapping[str, Any] | None


class CallbackList(keras.callbacks.CallbackList):  # type: ignore[misc]
    """Keras's list, whose hooks run on the thread of the training loop and never drop an interrupt.

    The hooks of Keras 3.15 ignore every exception while they turn logs into numbers of Python. So an
    interrupt in this moment would be lost.
    """

    def on_train_begin(self, logs: _Logs = None) -> None:
        self._call("on_train_begin", numbers_of(logs))

    def on_train_end(self, logs: _Logs = None) -> None:
        self._call("on_train_end", numbers_of(logs))

    def on_epoch_begin(self, epoch: int, logs: _Logs = None) -> None:
        self._call("on_epoch_begin", epoch, numbers_of(logs))

    def on_epoch_end(self, epoch: int, logs: _Logs = None) -> None:
        self._call("on_epoch_end", epoch, numbers_of(logs))

    def on_train_batch_begin(self, batch: int, logs: _Logs = None) -> None:
        self._call_of_batch("on_train_batch_begin", batch, logs)

    def on_train_batch_end(self, batch: int, logs: _Logs = None) -> None:
        self._call_of_batch("on_train_batch_end", batch, logs)

    def on_test_begin(self, logs: _Logs = None) -> None:
        self._call("on_test_begin", numbers_of(logs))

    def on_test_end(self, logs: _Logs = None) -> None:
        self._call("on_test_end", numbers_of(logs))

    def on_test_batch_begin(self, batch: int, logs: _Logs = None) -> None:
        self._call_of_batch("on_test_batch_begin", batch, logs)

    def on_test_batch_end(self, batch: int, logs: _Logs = None) -> None:
        self._call_of_batch("on_test_batch_end", batch, logs)

    def _call(self, hook: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            getattr(callback, hook)(*arguments)

    def _call_of_batch(self, hook: str, batch: int, logs: _Logs) -> None:
        numbers = numbers_of(logs)
        for callback in self.callbacks:
            getattr(callback, hook)(batch, logs=numbers)  # by name, as Keras does


def numbers_of(logs: _Logs) -> dict[str, Any]:
    """Return logs as Keras gives them to callbacks: sorted, flat, and with numbers of Python."""
    flat = flat_logs(dict(logs or {}))
    return {name: value if type(value) is float else _number(value) for name, value in flat.items()}


def _number(value: Any) -> Any:
    try:
        return float(keras.ops.convert_to_numpy(value) if tf.is_tensor(value) else value)
    except Exception:  # it is no number
        return value
