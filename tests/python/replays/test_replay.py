"""Steps of a run made again in this process: what a replay shows, and what it refuses."""

import json
import logging
from pathlib import Path
from shutil import copytree
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from clusters import run_well
from resumed import X, Y, model, plain, script_in, train, two_optimizers
from slow import mostly_slow

import tfdistr
from tfdistr.checkpoint.trace import TRACE, read_trace
from tfdistr.cli import main as command
from tfdistr.errors import ArgumentError
from tfdistr.replays.job_of_run import check_emulation
from tfdistr.strategies.worker_strategy import SingleWorker


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 48 steps with dropout and batch normalization; its last checkpoints are at 36 and 48."""
    folder = tmp_path_factory.mktemp("run") / "run"
    train(folder)
    return folder


@pytest.mark.parametrize(("step", "first"), [(42, 37), (30, 1), (1, 1), (np.int64(48), 37)])
def test_a_step_has_the_same_bits_from_the_nearest_checkpoint_on(run: Path, step: int, first: int) -> None:
    again = tfdistr.replay(run, step, model, X, Y)
    assert again.difference == 0.0
    assert [row["step"] for row in again.steps if row["again"]] == list(range(first, step + 1))
    assert again.epoch == (step - 1) // 12 + 1
    lines = str(again).splitlines()
    assert lines[0] == f"Step {step} of {run}, in epoch {again.epoch}: loss {again.loss:.6g}"
    assert "the largest difference from the trace is 0" in lines[1]


def test_a_step_that_is_gone_from_the_trace_does_not_hinder_the_replay_of_others(
    run: Path, tmp_path: Path
) -> None:
    copy = Path(copytree(run, tmp_path / "run"))
    lines = (copy / TRACE).read_text().splitlines(keepends=True)
    (copy / TRACE).write_text("".join(line for line in lines if '"step": 38,' not in line))
    assert tfdistr.replay(copy, 40, model, X, Y).difference == 0.0


def test_its_rows_are_those_that_the_step_read(run: Path) -> None:
    again = tfdistr.replay(run, 40, model, X, Y)
    indices = [row["index"] for row in again.rows]
    assert len(set(indices)) == 8
    x, y = again.inputs
    np.testing.assert_array_equal(x, X[indices])
    np.testing.assert_array_equal(y, Y[indices])
    following = [row["index"] for row in tfdistr.replay(run, 41, model, X, Y).rows]
    assert len({*indices, *following}) == 16


def test_rows_of_files_have_their_file_and_their_number_there(tmp_path: Path) -> None:
    """The log of a zero is not finite, in one row of the second file."""
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    one.write_text("x,y\n" + "\n".join(f"{n + 1},{n % 2}" for n in range(20)) + "\n")
    two.write_text("x,y\n" + "\n".join(f"{n - 7},{n % 2}" for n in range(7, 19)) + "\n")

    def logs() -> keras.Model:
        inputs = keras.Input((1,))
        made = keras.Model(inputs, keras.layers.Dense(2, "softmax")(keras.ops.log(inputs)))
        made.compile("sgd", "sparse_categorical_crossentropy")
        return made

    def data() -> Any:
        return tfdistr.load_dataset("csv", files=[one, two], features="x", target="y")

    train(tmp_path / "run", logs, data(), None, epochs=1)
    again = tfdistr.replay(tmp_path / "run", "nan", logs, data())
    for row in again.rows:
        file, number = (one, row["index"]) if row["index"] < 20 else (two, row["index"] - 20)
        assert (row["file"], row["row_of_file"]) == (str(file), number)
    assert f"20 of the data, row 0 of {two} (counted from 0)" in str(again)


def test_losses_gradients_and_updates_are_those_of_the_step(tmp_path: Path) -> None:
    train(tmp_path / "run", plain, epochs=1)
    again = tfdistr.replay(tmp_path / "run", 5, plain, X, Y)
    trained = plain()
    trained.set_weights(list(again.weights_before.values()))
    x, y = again.inputs
    with tf.GradientTape() as tape:
        loss = trained.compute_loss(x, y, trained(x))
    gradients = tape.gradient(loss, trained.trainable_variables)
    norms = [float(tf.norm(gradient)) for gradient in gradients]
    assert again.loss == pytest.approx(float(loss), rel=1e-5)
    assert np.mean([row["loss"] for row in again.rows]) == pytest.approx(float(loss), rel=1e-5)
    assert [row["norm"] for row in again.gradients] == pytest.approx(norms, rel=1e-4)
    assert [row["norm"] for row in again.updates] == pytest.approx([0.1 * n for n in norms], rel=1e-3)
    assert [row["layer"].split("/")[-1] for row in again.gradients] == ["hidden", "hidden", "out", "out"]
    assert [row["nan"] for row in again.gradients] == [0.0] * 4
    for name, value in again.weights_after.items():
        change = np.linalg.norm(value - again.weights_before[name])
        assert change == pytest.approx(next(r["norm"] for r in again.updates if name.endswith(
            f"{r['layer']}/{r['weight']}")), rel=1e-6)  # fmt: skip


def test_losses_of_rows_that_shares_have_normalized_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "1")  # as in a new process, which has chosen one thread

    def make() -> keras.Model:
        layers = [keras.layers.BatchNormalization(synchronized=True), keras.layers.Dense(2, "softmax")]
        made = keras.Sequential([keras.Input((4,)), *layers])
        made.compile("sgd", "sparse_categorical_crossentropy")
        return made

    train(tmp_path / "run", make, epochs=1, virtual_workers=2)
    again = tfdistr.replay(tmp_path / "run", 5, make, X, Y)
    assert np.mean([row["loss"] for row in again.rows]) == pytest.approx(again.loss, rel=1e-5)


def test_its_tables_and_its_plot(run: Path, with_pandas: Any) -> None:
    again = tfdistr.replay(run, 40, model, X, Y)
    pytest.importorskip("matplotlib")
    frame = again.to_frame("gradients")
    assert list(frame.columns) == ["layer", "weight", "norm", "largest", "nan", "inf"]
    assert len(again.to_frame()) == 8
    assert len(again.plot().axes) == 2
    with pytest.raises(ArgumentError, match="`table` must be one of"):
        again.to_frame("losses")


class Halves(keras.callbacks.Callback):
    """A callback of the user that changes the learning rate in the middle of epochs."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 5:
            self.model.optimizer.learning_rate.assign(float(self.model.optimizer.learning_rate) / 2)


class Shows(keras.callbacks.Callback):
    shown = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        type(self).shown += 1


def test_callbacks_that_change_the_training_run_and_others_do_not(tmp_path: Path) -> None:
    def callbacks() -> list[Any]:
        return [
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9), Halves(),
            tfdistr.chief_only(Shows()), keras.callbacks.CSVLogger(tmp_path / "log.csv"),
        ]  # fmt: skip

    train(tmp_path / "run", callbacks=callbacks)
    written, shown = (tmp_path / "log.csv").read_text(), Shows.shown
    with pytest.warns(tfdistr.TfdistrWarning, match="callbacks of your own classes.*: Halves"):
        again = tfdistr.replay(tmp_path / "run", 45, model, X, Y, callbacks=callbacks)
    assert again.difference == 0.0
    assert len({row["learning_rate"] for row in again.steps}) > 1
    assert ((tmp_path / "log.csv").read_text(), Shows.shown) == (written, shown)
    with pytest.raises(ArgumentError, match=r"(?s)callbacks of the run.*no .*LearningRateScheduler"):
        tfdistr.replay(tmp_path / "run", 45, model, X, Y)


class Once(keras.callbacks.Callback):
    """Changes the learning rate once."""

    done = False

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 5 and not self.done:
            self.done = True
            self.model.optimizer.learning_rate.assign(0.05)


@pytest.mark.filterwarnings("ignore:The replay runs the callbacks of your own classes")
def test_a_callback_with_a_state_is_as_new_in_each_replay(tmp_path: Path) -> None:
    train(tmp_path / "run", plain, epochs=1, callbacks=lambda: [Once()])
    once = Once()
    for _ in range(2):
        assert tfdistr.replay(tmp_path / "run", 8, plain, X, Y, callbacks=[once]).difference == 0.0


def test_other_code_is_never_silent(run: Path) -> None:
    def other() -> keras.Model:
        made = model()
        made.optimizer.learning_rate = 0.5
        return made

    with pytest.warns(tfdistr.TfdistrWarning, match="differs from the run since step 1"):
        assert tfdistr.replay(run, 3, other, X, Y).difference > 0.1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"step": 49}, r"number of a step in the trace(?s:.*)49, where .* has the steps 1 to 48"),
        ({"step": 0}, "number of a step"),
        ({"step": -1}, "number of a step"),
        ({"step": 2.5}, "number of a step"),
        ({"step": True}, "number of a step"),
        ({"step": "first"}, "number of a step"),
        ({"step": "nan"}, "48 steps with finite losses"),
        ({"x": X[:50], "y": Y[:50]}, "data of a replay(?s:.*)50, where the run has 90"),
        ({"y": 1 - Y}, "data of a replay(?s:.*)digest"),
        ({"model": plain}, "model of a replay(?s:.*)where the checkpoint has"),
        ({"model": plain()}, "must be the function(?s:.*)a compiled model"),
    ],
)
def test_what_is_not_that_of_the_run_is_named(run: Path, given: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        tfdistr.replay(run, **{"step": 40, "model": model, "x": X, "y": Y, **given})


def test_callbacks_that_end_the_training_before_the_step(run: Path) -> None:
    stops = keras.callbacks.EarlyStopping(monitor="loss", min_delta=10.0)
    with pytest.raises(ArgumentError, match=r"same data and callbacks(?s:.*)ends before step 30"):
        tfdistr.replay(run, 30, model, X, Y, callbacks=[stops])


@pytest.mark.parametrize(
    "layer", [keras.layers.BatchNormalization, lambda **named: keras.layers.Dropout(0.5, **named)]
)
def test_what_one_replica_cannot_compute_for_several_workers(layer: Any) -> None:
    made = keras.Sequential([keras.Input((4,)), layer(name="special")])
    with pytest.raises(ArgumentError, match=r"what 2 workers have(?s:.*)special: .*too many threads"):
        check_emulation(made, SingleWorker(), 2)


def test_a_place_without_a_run(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "none", None):
        with pytest.raises(ArgumentError, match="folder or the URL of a run with checkpoints"):
            tfdistr.replay(place, 1, model, X, Y)


def copied(run: Path, to: Path) -> Path:
    """A copy of the documents of a run."""
    for name in ("run.json", "job.json", TRACE):
        (to / name).write_bytes((run / name).read_bytes())
    return to


NO_ONE_PROCESS = r"One process must(?s:.*)"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"run.json": ('"multi_worker_mirrored"', '"parameter_server"')},
            f"{NO_ONE_PROCESS}parameter_server",
        ),
        ({"run.json": ('"multi_worker_mirrored"', '"mirrored"')}, f"{NO_ONE_PROCESS}'mirrored'"),
        (
            {"run.json": ('"workers": 1', '"workers": 2'), "job.json": ('n": "auto"', 'n": "nccl"')},
            f"{NO_ONE_PROCESS}communication='nccl'",
        ),
        ({TRACE: (keras.__version__, "3.0.1")}, r"where the run has Keras 3.0.1(?s:.*)keras==3.0.1"),
    ],
)
def test_a_run_that_this_process_cannot_make_again(
    changes: dict[str, tuple[str, str]], message: str, run: Path, tmp_path: Path
) -> None:
    other = copied(run, tmp_path)
    for document, (old, new) in changes.items():
        text = (other / document).read_text()
        assert old in text
        (other / document).write_text(text.replace(old, new, 1))
    with pytest.raises(ArgumentError, match=message):
        tfdistr.replay(other, 3, model, X, Y)


def test_a_trace_that_was_cut_short_is_used(run: Path, tmp_path: Path) -> None:
    other = copied(run, tmp_path)
    content = (other / TRACE).read_bytes()
    (other / TRACE).write_bytes(content[: len(content) // 2])
    again = tfdistr.replay(other, 5, model, X, Y)
    assert again.difference == 0.0
    with pytest.raises(ArgumentError, match="number of a step in the trace"):
        tfdistr.replay(other, 40, model, X, Y)
    (other / TRACE).write_bytes(content.splitlines()[0] + b"\n")
    with pytest.raises(ArgumentError, match="if its trace has steps"):
        tfdistr.replay(other, 5, model, X, Y)
    start, *steps = content.splitlines()
    later = start.replace(b'"step": 0', b'"step": 5')
    for lines, reason in (
        ([start, b'{"step": 1}'], "line 2 of .*trace"),
        (steps, "line 1 of .*before its start"),
        ([later, *steps], "line 2 of .*before its start"),
    ):
        (other / TRACE).write_bytes(b"\n".join(lines))
        with pytest.raises(ArgumentError, match=f"must be a start or a step(?s:.*){reason}"):
            tfdistr.replay(other, 5, model, X, Y)
    (other / TRACE).unlink()
    with pytest.raises(ArgumentError, match="if it has a trace"):
        tfdistr.replay(other, 5, model, X, Y)


class Draws(keras.layers.Layer):
    def call(self, inputs: Any) -> Any:
        return inputs + 0.01 * tf.random.normal(tf.shape(inputs))


def test_tf_random_is_refused_after_a_checkpoint(tmp_path: Path) -> None:
    def noisy() -> keras.Model:
        made = keras.Sequential([keras.Input((4,)), Draws(), keras.layers.Dense(2, "softmax")])
        made.compile("sgd", "sparse_categorical_crossentropy")
        return made

    train(tmp_path / "run", noisy, epochs=2)
    with pytest.raises(ArgumentError, match=r"RandomStandardNormal .*, as of tf.random"):
        tfdistr.replay(tmp_path / "run", 18, noisy, X, Y)


def test_two_workers_are_replayed_by_one_up_to_rounding(tmp_path: Path, recwarn: Any) -> None:
    def recurrent() -> keras.Model:
        made = keras.Sequential([keras.Input((4,)), keras.layers.Reshape((2, 2)), keras.layers.LSTM(3),
                                 keras.layers.Dense(2, "softmax")])  # fmt: skip
        made.compile("sgd", "sparse_categorical_crossentropy")
        return made

    train(tmp_path / "run", recurrent, epochs=1, cluster=tfdistr.local_cluster(2))
    # A recurrent layer without dropout draws nothing.
    assert "andom numbers" not in " ".join(str(each.message) for each in recwarn)
    assert tfdistr.replay(tmp_path / "run", 3, recurrent, X, Y).difference < 1e-5


def compiled(**given: Any) -> Any:
    def make() -> keras.Model:
        made = plain()
        made.compile(made.optimizer, made.loss, **given)
        return made

    return make


class Batches(keras.utils.PyDataset):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, number: int) -> Any:
        return X[8 * number : 8 * number + 8], Y[8 * number : 8 * number + 8]


def unknown_size() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices((X, Y)).filter(lambda x, y: True).batch(8)


KINDS = [
    (compiled(jit_compile=True), {}),
    (two_optimizers, {}),
    (plain, {"x": unknown_size, "y": None, "batch_size": None}),
    (compiled(steps_per_execution=3), {}),
    (compiled(run_eagerly=True), {}),
    (plain, {"x": Batches(), "y": None, "batch_size": None}),
    (plain, {"class_weight": {0: 1.0, 1: 3.0}}),
    (plain, {"initial_epoch": 1}),
    (plain, {"steps_per_epoch": 7}),
    (plain, {"checkpoint_every": 5}),
    (plain, {"batch_size": tfdistr.per_worker(8, scale_learning_rate="linear", warmup_epochs=2)}),
]


# Slow: each kind trains and is replayed twice.
@pytest.mark.parametrize(("make", "given"), mostly_slow(KINDS, KINDS[:3]))
def test_trainings_of_all_kinds(make: Any, given: Any, tmp_path: Path) -> None:
    data = {"x": given.get("x", X), "y": given.get("y", Y)}
    train(tmp_path / "run", make, **{"epochs": 3, **given, **data})
    steps = read_trace(tmp_path / "run").steps
    for step in (max(steps) - 2, min(steps) + 8):
        assert tfdistr.replay(tmp_path / "run", step, make, **data).difference == 0.0


def generated() -> Any:
    return (Batches()[number] for number in range(12))


@pytest.mark.parametrize("data", [unknown_size, generated])
def test_the_rows_of_passes_of_unknown_length_are_those_that_the_step_read(data: Any, tmp_path: Path) -> None:
    train(tmp_path / "run", plain, data, None, batch_size=None, epochs=2)
    again = tfdistr.replay(tmp_path / "run", 15, plain, data)
    np.testing.assert_array_equal(again.inputs[0], X[16:24])
    assert np.mean([row["loss"] for row in again.rows]) == pytest.approx(again.loss, rel=1e-5)


def test_callbacks_that_need_a_validation_get_it(tmp_path: Path) -> None:
    def callbacks() -> list[Any]:
        return [keras.callbacks.ReduceLROnPlateau(monitor="val_loss", patience=0, min_delta=10.0)]

    given = {"validation_data": (X[:20], Y[:20]), "callbacks": callbacks}
    train(tmp_path / "run", epochs=3, **given)
    assert tfdistr.replay(tmp_path / "run", 15, model, X, Y, **given).difference == 0.0


def test_virtual_workers_give_the_same_bits_on_another_number_of_workers(tmp_path: Path) -> None:
    train(tmp_path / "run", cluster=tfdistr.local_cluster(2), virtual_workers=4)
    (ended,) = run_well("replayed.py", 1, [str(tmp_path / "run"), "42"])
    assert json.loads(ended.output.splitlines()[-1]) == {"difference": 0.0, "first": 37, "rows": 8}


def test_random_numbers_of_each_worker_are_drawn_again(tmp_path: Path, caplog: Any) -> None:
    caplog.set_level(logging.ERROR)
    with pytest.warns(tfdistr.TfdistrWarning, match="each worker normalizes"):
        train(tmp_path / "run", cluster=tfdistr.local_cluster(2))
    (ended,) = run_well("replayed.py", 1, [str(tmp_path / "run"), "42"])  # from the checkpoint at 36
    assert json.loads(ended.output.splitlines()[-1])["difference"] < 1e-6


def test_a_run_in_a_store(tmp_path: Path) -> None:
    train("memory://bucket/replayed", plain, epochs=3)
    again = tfdistr.replay("memory://bucket/replayed", 30, plain, X, Y)
    assert again.difference == 0.0
    assert again.run == "memory://bucket/replayed"
    assert again.steps[-1]["step"] == 30


def test_the_command(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, empty = script_in(tmp_path, "model"), tmp_path / "empty.py"
    empty.write_text("model = 5\n")
    assert command.run(["replay", str(run), str(script), "--step", "40"]) == 0
    assert capsys.readouterr().out.startswith(f"Step 40 of {run}, in epoch 4: loss ")
    for name, message in (("none.py", "No such file"), ("empty.py", "without model() and data()")):
        assert command.run(["replay", str(run), str(tmp_path / name), "--step", "40"]) == 2
        assert message in capsys.readouterr().err
    with_parts = tmp_path / "parts.py"
    with_parts.write_text("from train import X, Y, model\ndef data():\n    return X, Y, None, (X, Y)\n")
    assert command.run(["replay", str(run), str(with_parts), "--step", "40"]) == 2
    assert "data() must return" in capsys.readouterr().err
    beside = tmp_path / "beside.py"  # imports what lies beside it
    beside.write_text("from train import data, model, X, Y\nvalidation_data = (X[:9], Y[:9])\n")
    assert command.run(["replay", str(run), str(beside), "--step", "40"]) == 0
    assert capsys.readouterr().out.startswith(f"Step 40 of {run}")
    assert command.run(["replay", str(run), str(script), "--step", "last"]) == 2
    assert "`step` must be the number" in capsys.readouterr().err
