"""What a result is used for: evaluation and prediction, here and on workers, and in other sessions."""

import json
import pickle
import sys
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import tfdistr
from tfdistr.errors import ArgumentError, TfdistrError
from tfdistr.jobs.outcome import epochs_of
from tfdistr.jobs.result import FitResult
from tfdistr.jobs.saved_result import from_bytes, to_bytes
from tfdistr.training import prediction_files
from tfdistr.training.prediction_files import Writer, files_of, in_structure

pytestmark = pytest.mark.timeout(240)

rng = np.random.default_rng(0)
X = rng.normal(size=(75, 4)).astype("float32")
Y = (X[:, :1] > 0).astype("float32")
JOB = {"batch_size": 16, "epochs": 2, "seed": 1, "verbose": 0}


EXAMPLES = tf.data.Dataset.from_tensor_slices((X, Y))


def model() -> keras.Model:
    made = keras.Sequential([keras.layers.Dense(3, "relu"), keras.layers.Dense(1, "sigmoid")])
    made.compile("adam", "binary_crossentropy", metrics=["accuracy"])
    return made


def with_two_outputs() -> keras.Model:
    x = keras.Input((4,), name="x")
    made = keras.Model({"x": x}, {"a": keras.layers.Dense(1)(x), "b": keras.layers.Dense(2)(x)})
    made.compile("sgd", {"a": "mse", "b": "mse"})
    return made


@pytest.fixture(scope="module")
def fit() -> FitResult:
    return tfdistr.distributed_fit(model, X, Y, **JOB)


@pytest.fixture(scope="module")
def cluster() -> tfdistr.LocalCluster:
    return tfdistr.local_cluster(workers=2)


def test_virtual_workers_evaluate_where_tensorflow_runs_with_several_threads(monkeypatch):
    tf.constant(1.0)
    monkeypatch.setenv("TF_NUM_INTRAOP_THREADS", "2")  # also on a machine with one core
    virtual = tfdistr.distributed_fit(model, X, Y, **JOB, virtual_workers=2, cluster=tfdistr.local_cluster(1))
    expected = virtual.evaluate(X, Y, cluster=tfdistr.local_cluster(2))
    assert virtual.evaluate(X, Y) == expected


def test_they_are_those_of_the_model(fit):
    np.testing.assert_array_equal(fit.predict(X), fit.model.predict(X, verbose=0))
    assert fit.evaluate(X, Y) == pytest.approx(fit.model.evaluate(X, Y, verbose=0, return_dict=True))
    weights = np.arange(75.0)
    expected = fit.model.evaluate(X, Y, sample_weight=weights, verbose=0, return_dict=True)
    assert fit.evaluate(X, Y, sample_weight=weights) == pytest.approx(expected)


def test_they_are_the_same_on_workers_and_leave_no_folder(fit, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    received = fit.predict(X, batch_size=10, cluster=cluster)
    np.testing.assert_array_equal(received, fit.predict(X, batch_size=10))
    alone = fit.evaluate(X, Y, batch_size=10)
    assert fit.evaluate(X, Y, batch_size=10, cluster=cluster) == pytest.approx(alone, abs=1e-6)
    # Some workers have no batch.
    np.testing.assert_array_equal(fit.predict(X[:3], cluster=cluster), fit.predict(X[:3]))
    assert list(tmp_path.glob("*/job.pkl")) == []


def test_steps_limit_them_and_data_may_be_a_function(fit):
    def examples() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((X, Y)).filter(lambda x, y: True)

    np.testing.assert_array_equal(fit.predict(examples, batch_size=32), fit.predict(X))
    np.testing.assert_array_equal(fit.predict(X, batch_size=10, steps=2), fit.predict(X[:20], batch_size=10))
    assert fit.evaluate(X, Y, batch_size=10, steps=2) == pytest.approx(fit.evaluate(X[:20], Y[:20]))


def test_the_outputs_have_the_structure_of_the_model(tmp_path):
    fit = tfdistr.distributed_fit(with_two_outputs, {"x": X}, {"a": Y, "b": X[:, :2]}, **JOB)
    expected = fit.model.predict({"x": X}, verbose=0)
    for received in (fit.predict({"x": X}), fit.predict({"x": X}, output=tmp_path / "out")):
        assert list(received) == ["a", "b"]
        for name, part in received.items():
            whole = np.concatenate([np.load(file) for file in part]) if isinstance(part, list) else part
            np.testing.assert_array_equal(whole, expected[name])


def test_outputs_go_to_files_of_a_limited_size(fit, monkeypatch, tmp_path):
    monkeypatch.setattr(prediction_files, "CHUNK_BYTES", 100)
    files = fit.predict(X, batch_size=8, output=tmp_path / "new" / "out")
    assert [file.name for file in files] == [f"predictions-{number:05d}.npy" for number in range(3)]
    assert list((tmp_path / "new").iterdir()) == [tmp_path / "new" / "out"]
    expected = fit.predict(X, batch_size=8)  # a larger batch may round a row in another way
    np.testing.assert_array_equal(np.concatenate([np.load(file) for file in files]), expected)


def test_outputs_go_to_parquet_files(fit, cluster, monkeypatch, tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(prediction_files, "CHUNK_BYTES", 100)
    files = fit.predict(X, batch_size=8, output=tmp_path / "out", output_format="parquet")
    assert [file.name for file in files] == [f"predictions-{number:05d}.parquet" for number in range(3)]
    read = np.concatenate([pyarrow.read_table(file)["predictions"].to_numpy() for file in files])
    np.testing.assert_array_equal(read, fit.predict(X, batch_size=8)[:, 0])
    files = fit.predict(X, cluster=cluster, output=tmp_path / "workers", output_format="parquet")
    read = np.concatenate([pyarrow.read_table(file)["predictions"].to_numpy() for file in files])
    np.testing.assert_array_equal(read, fit.predict(X)[:, 0])


def test_a_parquet_file_has_a_column_for_each_output(tmp_path):
    pyarrow = pytest.importorskip("pyarrow.parquet")
    outputs = {"a": np.arange(2.0), "b": [np.ones((2, 3), "float32"), np.arange(12).reshape(2, 3, 2)]}
    writer = Writer(tmp_path, 0)
    writer.write(outputs)
    writer.flush()
    (file,) = prediction_files.write_parquet(tmp_path, tmp_path)
    table = pyarrow.read_table(file).to_pydict()
    assert table == {
        "a": [0.0, 1.0], "b.0": [[1.0] * 3] * 2, "b.1": np.arange(12).reshape(2, 3, 2).tolist(),
    }  # fmt: skip


def test_without_pyarrow_there_is_no_parquet(fit, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ArgumentError) as caught:
        fit.predict(X, output=tmp_path / "out", output_format="parquet")
    assert caught.value.received == "no pyarrow"
    assert not (tmp_path / "out").exists()


def test_files_of_workers_are_in_the_order_of_the_data(tmp_path):
    for worker in (1, 0):
        writer = Writer(tmp_path, worker)
        writer.write(([np.full(2, worker)], {"b": np.full(2, 10 + worker)}))
        writer.flush()
    found = files_of(tmp_path)
    arrays = [np.concatenate([np.load(file) for file in files]).tolist() for files in found]
    assert in_structure(tmp_path, arrays) == [[[0, 0, 1, 1]], {"b": [10, 10, 11, 11]}]


def test_a_data_frame_gives_its_columns_by_their_names():
    import pandas as pd  # the workers of other tests have none

    frame = pd.DataFrame(X, columns=list("abcd"))
    fit = tfdistr.distributed_fit(model, frame, Y, **JOB)
    other = frame[list("dcba")].assign(more="text")
    np.testing.assert_array_equal(fit.predict(other), fit.predict(X))
    with pytest.raises(ArgumentError) as caught:
        fit.predict(frame[["a", "c"]])
    assert caught.value.received == "no column 'b', 'd' among 'a', 'c'"


SHAPE = "`x` must have the form of the inputs that"


@pytest.mark.parametrize(
    ("use", "rule", "received"),
    [
        (lambda fit, folder: fit.predict(X[:, :3]), SHAPE, "x: [examples, 3]"),
        (lambda fit, folder: fit.evaluate({"a": X}, Y), SHAPE, "x['a']: [examples, 4]"),
        (lambda fit, folder: fit.evaluate(X), "evaluate() needs `y`: it", "`x` without `y`"),
        (lambda fit, folder: fit.predict(X, output=folder), "`output` must be a new or empty", "{folder}"),
        (lambda fit, folder: fit.predict(X, output_format="parquet"), '`output_format="parquet"` needs',
         "no `output`"),
        (lambda fit, folder: fit.predict(lambda: EXAMPLES.batch(4).filter(lambda x, y: False)),
         "`x` must hold at least one example.", "0 examples"),
        (lambda fit, folder: fit.evaluate(X, Y, steps=4), "`steps` must be at most the number of",
         "steps=4, where 75 examples make 3 batches"),
        (lambda fit, folder: fit.predict(X, cluster=4), "`cluster` must be what local_cluster() or",
         "a number (4)"),
    ],
)  # fmt: skip
def test_what_is_refused(fit, tmp_path, use, rule, received):
    (tmp_path / "file").touch()
    with pytest.raises(ArgumentError) as caught:
        use(fit, tmp_path)
    assert caught.value.message.startswith(rule)
    assert str(caught.value.received) == received.format(folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert rule != SHAPE or caught.value.fix == "Pass x: [examples, 4]."


def test_the_epochs_go_on_as_in_one_run():
    whole = tfdistr.distributed_fit(model, X, Y, **JOB | {"epochs": 4})
    half = tfdistr.distributed_fit(model, X, Y, **JOB)
    rest = tfdistr.distributed_fit(half, X, Y, **JOB | {"epochs": 4}, initial_epoch=2)
    assert {name: half.history[name] + rest.history[name] for name in whole.history} == whole.history
    for mine, theirs in zip(rest.model.get_weights(), whole.model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert epochs_of(rest) == {"loss": [3, 4], "accuracy": [3, 4]}


def test_a_pickle_has_the_history_and_trains_on(fit):
    read = pickle.loads(pickle.dumps(fit))
    assert (read.history, read.params, read.workers, epochs_of(read)) == (
        fit.history, fit.params, fit.workers, epochs_of(fit),
    )  # fmt: skip
    more = [tfdistr.distributed_fit(old, X, Y, **JOB | {"epochs": 3}, initial_epoch=2) for old in (fit, read)]
    assert more[0].history == more[1].history


def test_a_saved_result_and_a_saved_model(fit, tmp_path):
    fit.save(tmp_path / "fit")
    fit.save(tmp_path / "fit")  # again
    read = FitResult.load(tmp_path / "fit")
    assert read.to_dict() == fit.to_dict()
    np.testing.assert_array_equal(read.predict(X), fit.predict(X))
    fit.save_model(tmp_path / "model.keras")
    saved = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(saved.predict(X), fit.predict(X))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit", "model.keras"]


def test_files_that_cannot_be_read_or_written(fit, tmp_path):
    with pytest.raises(ArgumentError, match=r"`path` must name a file that FitResult\.save\(\)") as caught:
        FitResult.load(tmp_path / "none")
    assert caught.value.received == f"{tmp_path}/none (No such file or directory)"
    with pytest.raises(TfdistrError) as caught:
        fit.save(tmp_path / "no-folder" / "fit")
    lines = str(caught.value).splitlines()
    assert lines[0] == "The result could not be written: No such file or directory."
    assert lines[1].startswith(f"Received: {tmp_path}/no-folder/fit, which needs ")
    assert lines[2] == "Fix: Make room, or name a file in another folder."
    (tmp_path / "folder").mkdir()
    with pytest.raises(TfdistrError, match="Is a directory"):
        fit.save(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_what_cannot_be_read(fit):
    content = to_bytes(fit)
    header, _, rest = content.partition(b"\n")
    assert json.loads(header) == {"tfdistr": tfdistr.__version__, "format": 1}
    other = json.dumps({"tfdistr": "9.9", "format": 7}).encode() + b"\n" + rest
    with pytest.raises(ArgumentError, match="reads results of the format") as caught:
        from_bytes(other)
    assert caught.value.received == "the format 7, written by tfdistr 9.9"
    torn = content.replace(b"PK", b"XX")  # the archive of the weights
    for part in (b"", b"abc", content[:10], content[:-20], torn):
        with pytest.raises(ArgumentError, match="A saved result must be whole"):
            from_bytes(part)


def test_a_function_that_cannot_be_sent_cannot_be_saved():
    generator = (number for number in range(3))

    def build() -> keras.Model:
        assert generator
        return model()

    fit = tfdistr.distributed_fit(build, X, Y, **JOB)
    with pytest.raises(ArgumentError) as caught:
        pickle.dumps(fit)
    lines = str(caught.value).splitlines()
    assert lines[0] == "A result can be saved if its model function can be sent to other processes."
    assert "generator" in lines[1]
    assert lines[2] == 'Fix: Save the model itself: fit.save_model("model.keras").'
