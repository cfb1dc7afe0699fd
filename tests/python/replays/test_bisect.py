"""Where two runs part, and the likely reason."""

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from resumed import X, Y, model, train

import tfdistr
from tfdistr.errors import ArgumentError
from tfdistr.replays.values_for_r import bisect_for_r


def plain(rate: float = 0.1, loss: Any = None) -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, "tanh", name="hidden"),
                             keras.layers.Dense(2, name="out")])  # fmt: skip
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(keras.optimizers.SGD(rate), loss)
    return made


def smoothed() -> keras.Model:
    """Other code with the same parts."""

    def sparse_categorical_crossentropy(y_true: Any, y_pred: Any) -> Any:
        return 1.01 * keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)

    return plain(loss=sparse_categorical_crossentropy)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bisected") / "run"
    train(folder, plain, epochs=2)
    return folder


def test_runs_that_are_the_same(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "same", plain, epochs=2)
    found = tfdistr.bisect(run, tmp_path / "same", plain, X, Y)
    assert (found.step, found.compared, found.tolerance, found.reason) == (None, 24, 0.0, None)
    assert "agree in all 24 steps" in str(found)


def test_two_workers_agree_with_one_up_to_the_tolerance(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "two", plain, epochs=2, cluster=tfdistr.local_cluster(2))
    found = tfdistr.bisect(run, tmp_path / "two")
    assert (found.step, found.tolerance) == (None, 0.001)


def test_a_row_that_is_not_finite_in_one_run(run: Path, tmp_path: Path) -> None:
    x = X.copy()
    x[20, 1] = np.nan
    train(tmp_path / "other", plain, x, epochs=1)
    found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y, x_b=x, y_b=Y)
    assert (found.reason, found.tensor, found.by) == ("data", "the rows of part 0 of the batch", np.inf)


def test_targets_that_differ(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", plain, y=1 - Y, epochs=1)
    found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y, y_b=1 - Y)
    assert (found.reason, found.tensor) == ("data", "the rows of part 1 of the batch")


def test_r_makes_each_model_with_the_seed_of_its_run(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", plain, epochs=1, seed=2)
    given = {"model": plain, "x": X, "y": Y, "model_b": None, "x_b": None, "y_b": None, "tolerance": None}
    seeds: list[int] = []
    none = dict.fromkeys(("sample_weight", "validation_data", "callbacks"))
    bisect_for_r(run, tmp_path / "other", seeds.append, **none, **given)
    assert seeds == [1, 2]


def test_a_row_that_differs(run: Path, tmp_path: Path) -> None:
    x = X.copy()
    x[20, 1] += 0.5
    train(tmp_path / "other", plain, x, epochs=2)
    found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y, x_b=x, y_b=Y)
    rows = tfdistr.replay(run, found.step, plain, X, Y).rows
    assert 20 in [row["index"] for row in rows]
    assert (found.reason, found.confirmed) == ("data", (True, True))
    assert found.tensor == "the rows of part 0 of the batch"
    assert tfdistr.bisect(run, tmp_path / "other").reason == "data"


class Halves(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate.assign(0.1 if epoch == 0 else 0.05)


def test_a_learning_rate_that_differs(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", plain, epochs=2, callbacks=[Halves()])
    found = tfdistr.bisect(run, tmp_path / "other")
    assert (found.step, found.reason) == (13, "learning rate")


def test_other_settings(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", plain, epochs=2, seed=2)
    found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y)
    assert (found.step, found.reason) == (1, "settings")
    assert found.differences == {"seed": (1, 2)}
    assert "seed: 1 and 2" in str(found)


def test_other_code(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", smoothed, epochs=2)
    with pytest.warns(tfdistr.TfdistrWarning, match="differs from the run since step 1"):
        found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y)
    assert (found.step, found.confirmed, found.reason) == (1, (True, False), "code")
    found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y, model_b=smoothed)
    assert (found.confirmed, found.reason) == ((True, True), "code")
    assert found.tensor.startswith("the gradient of ")
    assert found.by == pytest.approx(0.01, rel=0.01)


class Flips(keras.callbacks.Callback):
    """Changes one weight after the third step."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 2 and not getattr(self, "done", False):
            self.done = True
            weights = self.model.get_weights()
            weights[0][1, 2] += 0.25
            self.model.set_weights(weights)


def test_a_weight_that_was_changed(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", plain, epochs=2, callbacks=[tfdistr.chief_only(Flips())])
    with pytest.warns(tfdistr.TfdistrWarning, match="differs from the run since step 4"):
        found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y, callbacks=None)
    assert (found.step, found.confirmed) == (4, (True, False))


def test_callbacks_that_decide_by_a_validation_get_it(tmp_path: Path) -> None:
    def reduces(factor: float) -> list[Any]:
        return [keras.callbacks.ReduceLROnPlateau("val_loss", factor, patience=0, min_delta=10.0)]

    given = {"epochs": 3, "keep_checkpoints": 1, "validation_data": (X[:20], Y[:20])}
    for run, factor in (("a", 0.1), ("b", 0.5)):
        train(tmp_path / run, plain, callbacks=reduces(factor), **given)
    with pytest.warns(tfdistr.TfdistrWarning, match="differs from the run since step 25"):
        found = tfdistr.bisect(
            tmp_path / "a", tmp_path / "b", plain, X, Y,
            validation_data=given["validation_data"], callbacks=lambda: reduces(0.1),
        )  # fmt: skip
    assert (found.step, found.confirmed) == (25, (True, False))


def test_what_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="folder or the URL of a run"):
        tfdistr.bisect(run, tmp_path)
    with pytest.raises(ArgumentError, match="`tolerance` must be a number from 0"):
        tfdistr.bisect(run, run, tolerance=-1.0)
    train(tmp_path / "later", model, epochs=3, initial_epoch=2)
    with pytest.raises(ArgumentError, match="must have a step in common"):
        tfdistr.bisect(run, tmp_path / "later")
