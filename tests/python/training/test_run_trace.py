"""The trace of a run: what its steps record, on one and on several workers, and what the file keeps of it."""

import json
import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import resumed
import tensorflow as tf
from resumed import At, X, Y, bits, breaks, model, train, two_optimizers

import tfdistr
from tfdistr.checkpoint.trace import TRACE, Trace, read_trace
from tfdistr.strategies.exact.step_trace import StepTrace
from tfdistr.training.run_trace import RunTrace

SCHEDULE = keras.optimizers.schedules.ExponentialDecay(0.5, 4, 0.5)


def plain() -> keras.Model:
    return resumed.plain(SCHEDULE)


class OwnStep(keras.Sequential):
    """A step that calls neither ``compute_loss`` nor ``scale_loss``."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, self(x), from_logits=True))
        self.optimizer.apply(tape.gradient(loss, self.trainable_variables), self.trainable_variables)
        return {"loss": loss}


def own_step() -> keras.Model:
    made = OwnStep(plain().layers)
    made.compile(keras.optimizers.SGD(SCHEDULE))
    return made


def ids() -> keras.Model:
    made = keras.Sequential([keras.Input((4,), dtype="int32"), keras.layers.Embedding(5, 3),
                             keras.layers.Flatten(), keras.layers.Dense(1)])  # fmt: skip
    made.compile(keras.optimizers.SGD(0.1), "mse")
    return made


def scaled() -> keras.Model:
    """Loss scaling whose first factor is too large for the first steps."""
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, dtype="mixed_float16")])
    inner = keras.optimizers.SGD(0.01)
    made.compile(
        keras.optimizers.LossScaleOptimizer(inner, initial_scale=2.0**24),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return made


def by_hand(make: Any, x: Any, y: Any, steps: int) -> list[tuple[float, float, float]]:
    """Loss, norm and learning rate of the first steps of batches of 8 in order, without tfdistr."""
    keras.utils.set_random_seed(1)
    trained, found = make(), []
    for first in range(0, 8 * steps, 8):
        rate = float(trained.optimizer.learning_rate)
        batch, targets = x[first : first + 8], y[first : first + 8]
        with tf.GradientTape() as tape:
            loss = trained.compute_loss(batch, targets, trained(batch))
        grads = [tf.convert_to_tensor(g) for g in tape.gradient(loss, trained.trainable_variables)]
        found.append((float(loss), float(tf.linalg.global_norm(grads)), rate))
        trained.optimizer.apply(grads, trained.trainable_variables)
    return found


def numbers(trace: Trace, steps: int) -> list[tuple[float, ...]]:
    made = [trace.steps[number] for number in range(1, steps + 1)]
    return [(step.loss, *step.norms, *step.rates) for step in made]


@pytest.mark.parametrize("make", [plain, own_step])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"cluster": tfdistr.local_cluster(2)},
        {"cluster": tfdistr.local_cluster(1), "virtual_workers": 3},
    ],
)
def test_loss_norm_and_rate_are_those_of_the_whole_batch(make: Any, given: Any, tmp_path: Path) -> None:
    train(tmp_path / "run", make, epochs=2, shuffle=False, **given)
    trace = read_trace(tmp_path / "run")
    np.testing.assert_allclose(numbers(trace, 12), by_hand(plain, X, Y, 12), rtol=2e-5)
    assert sorted(trace.steps) == list(range(1, 25))
    assert [trace.steps[number].epoch for number in (1, 12, 13, 24)] == [1, 1, 2, 2]
    assert trace.starts[0]["workers"] == (given["cluster"].workers if given else 1)


def test_rows_of_a_sparse_gradient_are_added_first(tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).integers(0, 5, (24, 4)), np.ones((24, 1), "float32")
    train(tmp_path / "run", ids, x, y, epochs=1, shuffle=False)
    np.testing.assert_allclose(numbers(read_trace(tmp_path / "run"), 3), by_hand(ids, x, y, 3), rtol=2e-5)


def test_a_step_that_loss_scaling_skips_is_marked(tmp_path: Path) -> None:
    train(tmp_path / "run", scaled, epochs=1)
    steps = list(read_trace(tmp_path / "run").steps.values())
    assert steps[0].skipped
    assert steps[0].norms == (None,)
    assert all(step.is_finite for step in steps)
    made = [step for step in steps if not step.skipped]
    assert made
    assert all(0 < step.norms[0] < 100 for step in made)


def test_a_loss_that_is_no_number_is_in_the_trace(tmp_path: Path) -> None:
    x = X.copy()
    x[20] = np.nan
    with pytest.warns(tfdistr.TfdistrWarning):
        train(tmp_path / "run", plain, x, epochs=1, shuffle=False)
    trace = read_trace(tmp_path / "run")
    assert min(step.step for step in trace.steps.values() if not step.is_finite) == 3
    assert math.isnan(trace.steps[3].loss)


@pytest.mark.parametrize("given", [{}, {"cluster": tfdistr.local_cluster(1), "virtual_workers": 2}])
def test_the_trace_changes_no_result(given: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traced = train(tmp_path / "run", epochs=2, **given)
    place = None if given else tmp_path / "other"
    monkeypatch.setattr("tfdistr.training.train._run_trace", lambda *arguments: None)
    assert bits(traced) == bits(train(place, epochs=2, **given, checkpoint_every=None))


def test_there_is_none_without_checkpoints_or_without_a_folder_that_stays(tmp_path: Path) -> None:
    train(tmp_path / "run", epochs=1, checkpoint_every=None, cluster=tfdistr.local_cluster(1))
    assert not (tmp_path / "run" / TRACE).exists()
    fit = tfdistr.distributed_fit(
        model, X, Y, cluster=tfdistr.local_cluster(1), failures=tfdistr.on_failure(max_restarts=1), verbose=0
    )
    assert not (Path(fit.run_dir) / TRACE).exists()


def test_steps_that_are_made_again_count(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", epochs=3)
    with pytest.raises(RuntimeError, match="the disk is full"):
        train(tmp_path / "run", callbacks=[At(2, breaks)], epochs=3)
    path = tmp_path / "run" / TRACE
    assert sorted(read_trace(path.parent).steps) == list(range(1, 25))
    wrong = {"step": 30, "epoch": 3, "loss": 5.0, "norms": [1.0], "rates": [1.0]}
    with path.open("a") as file:  # a process was killed in the middle of a line
        file.write(json.dumps(wrong) + "\n" + '{"step": 31, "ep')
    assert 30 in read_trace(path.parent).steps
    fit = train(tmp_path / "run", epochs=3, resume=True)
    trace = read_trace(path.parent)
    assert trace.steps == read_trace(tmp_path / "whole").steps
    assert [start["step"] for start in trace.starts] == [0, 24]
    assert trace.start_of(24)["step"] == 0
    assert trace.start_of(25)["step"] == 24
    assert trace.starts[-1]["optimizers"] == ["Adam"]
    assert bits(fit) == bits(whole)


def test_no_trace_and_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(tfdistr.ArgumentError, match=r"has a trace.*\n.*No such file") as raised:
        read_trace(tmp_path)
    assert "checkpoint_every" in str(raised.value)
    (tmp_path / TRACE).write_text('{"step": 0}\n')
    with pytest.raises(tfdistr.ArgumentError, match=r"line 1 of"):
        read_trace(tmp_path)


def test_a_gradient_that_is_not_finite_is_shown_for_each_optimizer(tmp_path: Path) -> None:
    trace = RunTrace(StepTrace(two_optimizers()), tmp_path, stops=True)
    values = [[0.5, 4.0, 1.0, 0.1, math.nan, 1.0, 0.1]]
    with pytest.raises(tfdistr.NotFiniteError, match=r"step 3 (?s:.*); gradient norms: 2.0, nan"):
        trace.add(0, 3, [values])


def test_a_trace_that_cannot_be_written_costs_the_trace_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    (tmp_path / "elsewhere").write_text("")

    class Links(keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            (tmp_path / "run" / TRACE).symlink_to(tmp_path / "elsewhere")  # it is not followed

    with pytest.warns(tfdistr.TfdistrWarning, match="Cannot write the trace"):
        fit = train(tmp_path / "run", callbacks=[Links()], epochs=1)
    assert fit.history["loss"]
    assert (tmp_path / "elsewhere").read_text() == ""


def test_an_optimizer_that_gets_nothing_has_no_norm() -> None:
    trained = plain()
    trace = StepTrace(trained)
    with trace.recording():
        values = trace.values().numpy()
    assert not trace.has_loss
    assert values[1] == -1.0


@pytest.mark.parametrize("also_in_step", [False, True])
def test_an_update_in_a_function_of_the_step_is_recorded(also_in_step: bool) -> None:
    keras.utils.set_random_seed(1)
    trained = plain()
    trained.optimizer.build(trained.trainable_variables)
    trace = StepTrace(trained)

    def update(x: Any, y: Any) -> None:
        with tf.GradientTape() as tape:
            loss = trained.compute_loss(x, y, trained(x))
        trained.optimizer.apply(tape.gradient(loss, trained.trainable_variables), trained.trainable_variables)

    in_function = tf.function(update, autograph=False)

    @tf.function(autograph=False)
    def step(first: Any, second: Any) -> Any:
        with trace.recording():
            in_function(*first)
            if also_in_step:
                update(*second)
            return trace.values()

    each = 1 + also_in_step
    norms = [norm for _, norm, _ in by_hand(plain, X, Y, 2 * each)]
    batches = [(tf.constant(X[n : n + 8]), tf.constant(Y[n : n + 8])) for n in range(0, 32, 8)]
    for number in range(2):
        own = slice(each * number, each * (number + 1))
        values = step(*(batches[own] * 2)[:2]).numpy()
        assert math.sqrt(values[1]) == pytest.approx(np.linalg.norm(norms[own]), rel=1e-5)


def test_shares_that_run_eagerly_add_up_to_the_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")  # as in a new process, which has chosen one thread

    def eager() -> keras.Model:
        made = plain()
        made.compile(made.optimizer, made.loss, run_eagerly=True)
        return made

    for name, make in (("eager", eager), ("graph", plain)):
        train(tmp_path / name, make, epochs=1, virtual_workers=2)
    one, other = (read_trace(tmp_path / name).steps for name in ("eager", "graph"))
    assert [step.loss for step in one.values()] == pytest.approx([s.loss for s in other.values()], rel=1e-5)
