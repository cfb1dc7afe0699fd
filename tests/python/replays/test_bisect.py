"""Where two runs part, and the likely reason."""

import json
from pathlib import Path
from shutil import copytree
from typing import Any

import keras
import numpy as np
import pytest
from paths import ROOT
from resumed import X, Y, model, plain, train, two_optimizers
from slow import mostly_slow

import tfdistr
from tfdistr.checkpoint.trace import TRACE
from tfdistr.errors import ArgumentError
from tfdistr.replays.bisect import EXACT
from tfdistr.replays.values_for_r import bisect_for_r


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


def dropped() -> keras.Model:
    made = keras.Sequential(
        [*plain().layers[:1], keras.layers.Dropout(0.5, name="drop"), keras.layers.Dense(2)]
    )
    made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


def test_a_layer_that_draws_on_each_worker_is_named(tmp_path: Path) -> None:
    train(tmp_path / "one", dropped, epochs=1)
    train(tmp_path / "two", dropped, epochs=1, cluster=tfdistr.local_cluster(2))
    found = tfdistr.bisect(tmp_path / "one", tmp_path / "two", dropped, X, Y)
    assert (found.step, found.reason, found.confirmed) == (1, "workers", None)
    assert "differences: [] and ['each worker draws its own random numbers in drop']" in str(found)
    assert 'See "Differences from one worker" in docs/exact.md: `Dropout`, noise, augmentation' in str(found)


def changed(run: Path, to: Path, change: Any) -> Path:
    """Return a copy of a run, with other lines of its trace."""
    copytree(run, to)
    lines = [json.loads(line) for line in (run / TRACE).read_text().splitlines()]
    (to / TRACE).write_text("".join(f"{json.dumps(change(line))}\n" for line in lines))
    return to


def test_runs_on_as_many_workers_do_not_differ_by_their_number(run: Path, tmp_path: Path) -> None:
    def draws(line: Any) -> Any:
        if "start" in line:
            return {
                "start": line["start"] | {"differences": ["each worker draws its own random numbers in a"]}
            }
        return line if line["step"] < 5 else line | {"loss": 9.0}

    found = tfdistr.bisect(run, changed(run, tmp_path / "other", draws))
    assert (found.step, found.reason) == (5, "update")
    assert "differences" in found.differences


def test_the_learning_rate_of_the_second_optimizer(tmp_path: Path) -> None:
    def slower(line: Any) -> Any:
        return line if line.get("step", 0) < 4 else line | {"rates": [line["rates"][0], 0.005]}

    train(tmp_path / "run", two_optimizers, epochs=1)
    other = changed(tmp_path / "run", tmp_path / "other", slower)
    with pytest.warns(tfdistr.TfdistrWarning, match="differs from the run since step 4"):
        found = tfdistr.bisect(tmp_path / "run", other, two_optimizers, X, Y)
    assert (found.step, found.confirmed, found.reason) == (4, (True, False), "learning rate")


def test_known_differences_are_rows_of_the_page() -> None:
    rows = (ROOT / "docs/exact.md").read_text().partition("## Differences from one worker")[2].splitlines()
    for row in EXACT.values():
        assert any(line.startswith(f"| {row}") for line in rows), row


NOT_FINITE = X.copy()
NOT_FINITE[20, 1] = np.nan


@pytest.mark.parametrize(("x", "y", "part", "by"), [(NOT_FINITE, Y, 0, np.inf), (X, 1 - Y, 1, 1.0)])
def test_inputs_and_targets_that_differ(
    x: Any, y: Any, part: int, by: float, run: Path, tmp_path: Path
) -> None:
    train(tmp_path / "other", plain, x, y, epochs=1)
    found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y, x_b=None if x is X else x, y_b=y)
    assert (found.reason, found.tensor, found.by) == ("data", f"the rows of part {part} of the batch", by)


def test_a_row_that_differs(run: Path, tmp_path: Path) -> None:
    x = X.copy()
    x[20, 1] += 0.5
    train(tmp_path / "other", plain, x, epochs=2)
    found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y, x_b=x, y_b=Y)
    rows = tfdistr.replay(run, found.step, plain, X, Y).rows
    assert 20 in [row["index"] for row in rows]
    assert (found.reason, found.confirmed) == ("data", (True, True))
    assert found.tensor == "the rows of part 0 of the batch"
    assert found.indices == [20]
    assert [rows[row]["index"] for row in found.rows] == [20]
    assert f"Rows that differ: {found.rows[0]} of the batch, 20 of the data (counted from 0)" in str(found)
    given = {"x": X, "y": Y, "x_b": x, "y_b": Y, "callbacks": None, "callbacks_b": None, "tolerance": None}
    in_r = bisect_for_r(
        run, tmp_path / "other", lambda seed: None, model=plain, model_b=None, sample_weight=None, **given
    )
    assert (in_r["indices"], in_r["rows"]) == ([21], [found.rows[0] + 1])
    assert tfdistr.bisect(run, tmp_path / "other").reason == "data"


def test_other_settings(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", plain, epochs=2, seed=2)
    found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y)
    assert (found.step, found.reason) == (1, "settings")
    assert found.differences == {"seed": (1, 2)}
    assert "seed: 1 and 2" in str(found)
    none = (
        "sample_weight",
        "validation_data",
        "callbacks",
        "model_b",
        "x_b",
        "y_b",
        "callbacks_b",
        "tolerance",
    )
    seeds: list[int] = []
    bisect_for_r(run, tmp_path / "other", seeds.append, model=plain, x=X, y=Y, **dict.fromkeys(none))
    assert seeds == [1, 2]  # each model is made with the seed of its run


def test_other_code(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", smoothed, epochs=2)
    with pytest.warns(tfdistr.TfdistrWarning, match="differs from the run since step 1"):
        found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y)
    assert (found.step, found.confirmed, found.reason) == (1, (True, False), "code")
    found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y, model_b=smoothed)
    assert (found.confirmed, found.reason) == ((True, True), "code")
    assert found.tensor == "the loss"
    assert found.by == pytest.approx(0.01, rel=0.01)


class Happens(keras.callbacks.Callback):
    """Changes the model after the third step. No checkpoint tells of it, as of an accident."""

    remembers = False

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.change = change

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 2 and not getattr(self, "done", False):
            self.done = True
            self.change(self.model)


def adds(model: keras.Model) -> None:
    kernel = model.get_layer("hidden").kernel
    kernel.assign(kernel + 0.25 * np.eye(4, 8))


def halves_rate(model: keras.Model) -> None:
    model.optimizer.learning_rate.assign(0.05)


ACCIDENTS = [
    (adds, "weights", 4, "hidden/kernel after the step"),
    (adds, "weights", 12, None),
    (halves_rate, "learning rate", 12, None),
]


# Slow: each trains a run.
@pytest.mark.parametrize(("change", "reason", "every", "tensor"), mostly_slow(ACCIDENTS, ACCIDENTS[:1]))
def test_an_accident_in_one_run(
    change: Any, reason: str, every: int, tensor: str | None, run: Path, tmp_path: Path
) -> None:
    train(tmp_path / "other", plain, epochs=2, callbacks=[Happens(change)], checkpoint_every=every,
          keep_checkpoints=9)  # fmt: skip
    with pytest.warns(tfdistr.TfdistrWarning, match="differs from the run since step 4"):
        found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y)
    assert (found.step, found.confirmed, found.reason) == (4, (True, False), reason)
    assert tensor is None or found.tensor.endswith(tensor)


def test_a_change_of_which_a_checkpoint_tells(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", plain, epochs=2, callbacks=[Happens(adds)], checkpoint_every=3,
          keep_checkpoints=9)  # fmt: skip
    found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y)
    assert (found.step, found.confirmed, found.reason) == (4, (True, True), "weights")
    assert found.tensor.endswith("hidden/kernel before the step")


class Halves(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.optimizer.learning_rate.assign(0.1 if epoch == 0 else 0.05)


def test_callbacks_of_one_run(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", plain, epochs=2, callbacks=[Halves()])
    found = tfdistr.bisect(run, tmp_path / "other")
    assert (found.step, found.confirmed, found.reason) == (13, None, "learning rate")
    with pytest.raises(ArgumentError, match=r"callbacks of the run must be passed(?s:.*)no Halves"):
        tfdistr.bisect(run, tmp_path / "other", plain, X, Y)
    with pytest.warns(tfdistr.TfdistrWarning, match="Halves"):
        found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y, callbacks_b=[Halves()])
    assert (found.step, found.confirmed, found.reason) == (13, (True, True), "learning rate")


def built(
    units: int = 8,
    activation: str = "tanh",
    drop: int = 0,
    reduction: str = "sum_over_batch_size",
    **given: Any,
) -> Any:
    def make() -> keras.Model:
        inputs = keras.Input((4,))
        hidden = keras.layers.Dense(units, activation, name="hidden")(inputs)
        if drop:
            hidden = keras.layers.Dropout(0.3, seed=drop, name="drop")(hidden)
        made = keras.Model(inputs, keras.layers.Dense(2, name="out")(hidden))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction=reduction)
        made.compile("sgd", loss, **given)
        return made

    return make


MODELS = [
    (built(), built(activation="elu"), "code", "an output of the layer hidden"),
    (built(drop=1), built(drop=2), "random numbers", "an output of the layer drop"),
    (built(), built(reduction="sum"), "code", "the loss"),
    (built(), built(units=9), "code", "hidden/kernel before the step"),
    (built(), built(jit_compile=True), "kernel", "the "),
]


# Slow: each trains two runs.
@pytest.mark.parametrize(("one", "other", "reason", "tensor"), mostly_slow(MODELS, MODELS[:2]))
def test_the_layer_in_which_two_models_differ(
    one: Any, other: Any, reason: str, tensor: str, tmp_path: Path
) -> None:
    weights = np.linspace(0.5, 1.5, len(X))
    for name, make in (("a", one), ("b", other)):
        train(tmp_path / name, make, epochs=1, sample_weight=weights)
    found = tfdistr.bisect(tmp_path / "a", tmp_path / "b", one, X, Y, model_b=other, sample_weight=weights)
    assert (found.step, found.confirmed, found.reason) == (1, (True, True), reason)
    assert tensor in found.tensor


def constrained() -> keras.Model:
    """Change the weights after each step, which the numbers of the first step do not show."""
    made = plain()
    made.get_layer("hidden").kernel.constraint = keras.constraints.MaxNorm(0.5)
    return made


def test_a_step_whose_numbers_show_nothing_is_found_by_its_weights(run: Path, tmp_path: Path) -> None:
    train(tmp_path / "other", constrained, epochs=2)
    found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y, model_b=constrained)
    assert (found.step, found.confirmed, found.reason) == (1, (True, True), "code")
    assert found.tensor.endswith("hidden/kernel after the step")
    with pytest.warns(tfdistr.TfdistrWarning, match="differs from the run since"):
        found = tfdistr.bisect(run, tmp_path / "other", plain, X, Y)  # the examiner does not know the code
    assert (found.step, found.confirmed, found.reason) == (2, (True, False), "code")


def test_weights_that_no_number_shows(tmp_path: Path) -> None:
    def normalized(momentum: float) -> Any:
        def make() -> keras.Model:
            made = plain()
            layers = [made.layers[0], keras.layers.BatchNormalization(momentum=momentum, name="normal")]
            made = keras.Sequential([keras.Input((4,)), *layers, made.layers[1]])
            made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
            return made

        return make

    one, other = normalized(0.9), normalized(0.8)
    for name, make in (("a", one), ("b", other)):
        train(tmp_path / name, make, batch_size=45, epochs=2)  # two steps each
    assert tfdistr.bisect(tmp_path / "a", tmp_path / "b").step is None
    found = tfdistr.bisect(tmp_path / "a", tmp_path / "b", one, X, Y, model_b=other)
    assert (found.step, found.difference, found.reason) == (1, 0.0, "code")
    assert "normal/moving_" in found.tensor
    for folder in (tmp_path / "a", tmp_path / "b"):  # the first checkpoint is not kept
        train(folder, one if folder.name == "a" else other, batch_size=45, epochs=3, resume=True)
    found = tfdistr.bisect(tmp_path / "a", tmp_path / "b", one, X, Y, model_b=other)
    assert (found.step, found.difference, found.reason) == (5, 0.0, "weights")


def test_what_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="folder or the URL of a run"):
        tfdistr.bisect(run, tmp_path)
    with pytest.raises(ArgumentError, match="`tolerance` must be a number from 0"):
        tfdistr.bisect(run, run, tolerance=-1.0)
    train(tmp_path / "later", model, epochs=3, initial_epoch=2)
    with pytest.raises(ArgumentError, match="must have a step in common"):
        tfdistr.bisect(run, tmp_path / "later")
