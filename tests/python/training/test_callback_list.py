"""The hooks of callbacks, as the training loop calls them."""

from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfdistr.training.epochs import CallbackList, numbers_of


def test_logs_are_sorted_and_have_numbers_of_python():
    logs = {
        "loss": tf.constant(1.5),
        "accuracy": np.float32(0.25),
        "curve": np.ones(3),
        "nested": {"recall": keras.ops.ones(())},
        "text": "none",
    }
    numbers = numbers_of(logs)
    assert list(numbers) == ["accuracy", "curve", "loss", "recall", "text"]
    assert {name: numbers[name] for name in ("accuracy", "loss", "recall", "text")} == {
        "accuracy": 0.25,
        "loss": 1.5,
        "recall": 1.0,
        "text": "none",
    }
    assert type(numbers["loss"]) is float
    assert numbers["curve"] is logs["curve"]
    assert numbers_of(None) == {}


HOOKS = {
    **dict.fromkeys(["on_train_begin", "on_train_end", "on_test_begin", "on_test_end"], ()),
    **dict.fromkeys(["on_epoch_begin", "on_epoch_end"], (7,)),
    **dict.fromkeys(["on_train_batch_begin", "on_train_batch_end"], (8,)),
    **dict.fromkeys(["on_test_batch_begin", "on_test_batch_end"], (9,)),
}


def test_callbacks_get_what_they_get_from_keras():
    called: list[Any] = []

    class Notes(keras.callbacks.Callback):
        pass

    for hook in HOOKS:

        def note(self: Notes, *arguments: Any, hook: str = hook, **named: Any) -> None:
            called.append((hook, arguments, named))

        setattr(Notes, hook, note)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    by_keras = keras.callbacks.CallbackList([Notes()], model=model)
    by_keras._async_train = by_keras._async_test = False
    for listed in (CallbackList([Notes()], model=model), by_keras):
        for hook, arguments in HOOKS.items():
            getattr(listed, hook)(*arguments, {"loss": np.float32(2.0)})
    assert called[0] == ("on_train_begin", ({"loss": 2.0},), {})
    assert called[6] == ("on_train_batch_begin", (8,), {"logs": {"loss": 2.0}})
    assert called[: len(HOOKS)] == called[len(HOOKS) :]


class Interrupting:
    """A value of the logs that is interrupted while it becomes a number."""

    def __float__(self) -> float:
        raise KeyboardInterrupt


def test_an_interrupt_is_not_lost_while_logs_become_numbers():
    listed = CallbackList([], model=keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]))
    for hook in (listed.on_epoch_end, listed.on_train_batch_end, listed.on_test_batch_end):
        with pytest.raises(KeyboardInterrupt):
            hook(0, {"loss": Interrupting()})
