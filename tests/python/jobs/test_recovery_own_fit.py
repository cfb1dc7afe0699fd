"""Models with a fit() of their own: those that continue from a checkpoint, and those that are refused."""

import logging
from typing import Any

import keras
import pytest
from resumed import of_class, train

from tfdistr.checkpoint.folder import CheckpointFolder, checkpoint_folder
from tfdistr.errors import ArgumentError

RULE = (
    "With checkpoints a fit() of the model must train each epoch once, from `initial_epoch` on, and call the "
    "callbacks."
)
FIX = (
    "Make it pass `initial_epoch`, `epochs` and `callbacks` to super().fit() once, or leave "
    "`checkpoint_every` and `resume` out."
)


class Twice(keras.Sequential):
    def fit(self, *args: Any, **given: Any) -> Any:
        super().fit(*args, **given)
        return super().fit(*args, **given)


class FromTheBeginning(keras.Sequential):
    def fit(self, *args: Any, initial_epoch: int = 0, **given: Any) -> Any:
        return super().fit(*args, **given)


class WithoutCallbacks(keras.Sequential):
    def fit(self, *args: Any, callbacks: Any = None, **given: Any) -> Any:
        return super().fit(*args, **given)


def check_refused(received: str, run_dir: Any, kind: type, **given: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        train(run_dir, of_class(kind), **given)
    said = f"Received: {kind.__name__}.fit(), which {received}"
    assert str(caught.value).splitlines() == [RULE, said, f"Fix: {FIX}"]


def test_a_fit_that_trains_twice_is_refused(tmp_path):
    check_refused("starts to train for a second time", tmp_path / "run", Twice, epochs=1)


@pytest.mark.slow(reason="trains three times")
def test_a_fit_that_begins_anew_is_refused_when_it_should_go_on(tmp_path):
    train(tmp_path / "run", of_class(FromTheBeginning), epochs=2)
    received = "starts epoch 1 where epoch 3 is the next"
    check_refused(received, tmp_path / "run", FromTheBeginning, epochs=3, resume=True)


@pytest.mark.slow(reason="trains three times")
def test_a_fit_without_callbacks_has_no_checkpoints(tmp_path, caplog):
    run = tmp_path / "run"
    with caplog.at_level(logging.WARNING, logger="tfdistr"):
        train(run, of_class(WithoutCallbacks), epochs=1)
    said = "WithoutCallbacks.fit() calls no callbacks: there are no checkpoints of its epochs."
    assert caplog.messages == [said]
    assert not CheckpointFolder(checkpoint_folder(run)).positions()
    # Of the same layers, by a class of the same name, which has them.
    with_them = type("WithoutCallbacks", (keras.Sequential,), {})
    train(run, of_class(with_them), epochs=1, resume=True)
    received = "calls no callbacks, and did not resume"
    check_refused(received, run, WithoutCallbacks, epochs=2, resume=True)
