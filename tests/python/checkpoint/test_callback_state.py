"""What callbacks remember in a run that continues, and their settings where these are given anew."""

import json
import random
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from resumed import train

import tfdistr
from tfdistr.checkpoint.python_state import (
    NotPlainError,
    as_given,
    from_plain,
    give_back,
    state_of,
    to_plain,
)
from tfdistr.strategies.callbacks import chief_only


class Counts(keras.callbacks.Callback):
    """Has numbers that training changes, and some that it changes back."""

    def __init__(self, start: int = 5, step: Any = 1, weights: Any = (0, 1, 2)) -> None:
        super().__init__()
        self.left, self.step, self.weights = start, step, np.array(weights)

    def on_train_begin(self, logs: Any = None) -> None:
        self.left = 0


@pytest.mark.parametrize(
    ("before", "after", "changes", "expected"),
    [
        (keras.callbacks.EarlyStopping("val_loss", patience=3),
         keras.callbacks.EarlyStopping("loss", patience=7, verbose=1), {"wait": 2, "best": 0.5},
         {"monitor": "loss", "patience": 7, "verbose": 1, "wait": 2, "best": 0.5}),
        (Counts(), Counts(), {"left": 5}, {"left": 5}),
        (Counts(), Counts(step=2), {"step": 3, "weights": np.ones(3)}, {"step": 3, "weights": [1, 1, 1]}),
        (Counts(step=None), Counts(step=[1.0, np.float32(2)], weights=np.zeros(2)), {},
         {"step": [1.0, 2.0], "weights": [0, 0]}),
    ],
    ids=["settings are the new ones", "changed back", "a setting that has changed", "of another kind"],
)  # fmt: skip
def test_what_training_has_changed_comes_back(before, after, changes, expected):
    given = as_given([before])
    before.on_train_begin()
    vars(before).update(changes)
    arrays: list[Any] = []
    states = json.loads(json.dumps(state_of([before], arrays, given)))
    given = as_given([after])
    after.on_train_begin()
    give_back([after], states, arrays, given)
    assert {name: np.array(getattr(after, name)).tolist() for name in expected} == expected


def test_a_run_goes_on_with_another_patience(tmp_path):
    def trained(epochs: int, patience: int) -> tfdistr.FitResult:
        # Never better by so much than in the first epoch.
        stops = keras.callbacks.EarlyStopping("loss", patience=patience, min_delta=1000.0)
        return train(tmp_path / "run", epochs=epochs, callbacks=[stops], resume=True)

    trained(epochs=2, patience=9)
    assert len(trained(epochs=9, patience=3).history["loss"]) == 4


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        0.1,
        float("inf"),
        "text",
        [1, [2.5]],
        (1, ("a", None)),
        {1: 2, "a": [(3,)]},
        pytest.param(random.getstate(), id="random"),
    ],
    ids=lambda value: str(value)[:4],
)
def test_plain_values_come_back(value):
    arrays: list[Any] = []
    plain = json.loads(json.dumps(to_plain(value, arrays)))
    assert from_plain(plain, arrays) == value


def test_arrays_come_back_as_what_they_were():
    value = [np.arange(3), np.float32(1.5), tf.constant([1, 2])]
    arrays: list[Any] = []
    array, scalar, tensor = from_plain(json.loads(json.dumps(to_plain(value, arrays))), arrays)
    assert array.tolist() == [0, 1, 2]
    assert type(scalar) is np.float32
    assert scalar == 1.5
    assert tf.is_tensor(tensor)
    for other in (object(), {"a": {1}}, [tf.Variable(1.0)], np.array(["a"])):
        with pytest.raises(NotPlainError):
            to_plain(other, [])


def test_callbacks_are_told_apart_and_what_is_not_plain_is_left_out():
    marked = chief_only(keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None))
    arrays: list[Any] = []
    states = state_of([Counts(1), Counts(2), marked], arrays, {})
    assert list(states) == ["Counts 0", "Counts 1", "LambdaCallback 0"]
    assert [states[name]["left"] for name in ("Counts 0", "Counts 1")] == [1, 2]
    assert "on_epoch_end" not in states["LambdaCallback 0"]
    wrapper = keras.callbacks.Callback()  # as workers have around the callbacks of the user
    wrapper.runs_for = Counts(3)
    assert state_of([wrapper], arrays, {})["Counts 0"]["left"] == 3
