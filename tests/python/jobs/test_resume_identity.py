"""Which job a run is: what may differ when it is resumed, and what is refused."""

import json
import re
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf
from resumed import X, Y, bits, executes_three, model, train

import tfdistr
from tfdistr.data.source import make_source
from tfdistr.errors import ArgumentError
from tfdistr.jobs.resume import begin_or_resume
from tfdistr.training.job import Job
from tfdistr.training.recovery_options import Recovery


def test_a_run_of_another_job_is_refused(tmp_path):
    train(tmp_path / "run", epochs=1)
    changes = {"batch_size": 16, "seed": 2, "x": X[:50], "y": Y[:50], "class_weight": {0: 2.0}}
    with pytest.raises(ArgumentError, match="Cannot resume: the job differs from the saved") as caught:
        train(tmp_path / "run", resume=True, **changes)
    assert caught.value.received == (
        "batch_size=16, where the run has 8; seed=2, where the run has 1; examples=50, where the run has 90; "
        "class_weight={'0': 2.0}, where the run has {}"
    )


def test_the_checkpoints_of_a_run_whose_id_was_changed_are_kept(tmp_path):
    train(tmp_path / "run", epochs=2)
    document, folder = tmp_path / "run" / "run.json", tmp_path / "run" / "checkpoints"
    text, saved = document.read_text(), {path: path.read_bytes() for path in folder.iterdir()}
    document.write_text(text.replace(json.loads(text)["id"], "0" * 32))
    fit = train(tmp_path / "run", epochs=3, resume=True)
    assert len(fit.history["loss"]) == 3
    assert sorted(path.read_bytes() for path in folder.glob("*.refused")) == sorted(saved.values())


def test_other_options_and_another_kind_of_data_are_refused(tmp_path):
    train(tmp_path / "run", epochs=1, strategy=tfdistr.one_device(device="cpu:0"))
    with pytest.raises(ArgumentError) as caught:
        train(tmp_path / "run", x=Reads(), y=None, strategy="one_device", resume=True)
    assert str(caught.value).splitlines()[1] == (
        "Received: examples='a function', where the run has 90; device=None, where the run has 'cpu:0'"
    )


class Reads:
    """A function of data, as an object."""

    def __call__(self) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((X, Y))


def test_a_job_is_the_same_in_whatever_form_its_data_and_options_are(tmp_path):
    options = {"y": None, "batch_size": 16, "epochs": 1, "seed": 2}
    train(tmp_path / "run", x=Reads(), strategy=tfdistr.mirrored(devices="cpu:0"), **options)
    of_tuple = tfdistr.mirrored(devices=("cpu:0",))
    fit = train(tmp_path / "run", x=Reads().__call__, strategy=of_tuple, resume=True, **options)
    assert len(fit.history["loss"]) == 1


def test_what_says_which_job_a_run_is(tmp_path):
    options = {"placement": {"first": len}, "devices": ["cpu:0", "cpu:1"]}
    for source, described in DATA_IN_RUNS:
        job = Job(
            model, make_source(source), strategy="mirrored", options=options, recovery=Recovery(every="epoch")
        )
        folder = tmp_path / described
        folder.mkdir()
        begin_or_resume(job, folder, 1, print)
        run = json.loads((folder / "run.json").read_text())["job"]
        assert (run["examples"], run["validation examples"]) == (described, None)
        assert run["options"] == {"devices": ["cpu:0", "cpu:1"], "placement": "a dictionary of length 1"}
        assert begin_or_resume(job, folder, 1, print) is not None  # it is the same job


DATA_IN_RUNS = [
    (tfdistr.load_dataset("digits"), "the data set 'digits', split 'train'"),
    (tf.data.Dataset.from_tensor_slices((X, Y)), "a tf.data.Dataset"),
    ((batch for batch in [(X, Y)]), "a PyDataset or a generator"),
    (len, "a function"),
]


def test_another_model_is_refused(tmp_path):
    train(tmp_path / "run", epochs=1)

    def wider() -> keras.Model:
        made = keras.Sequential([keras.layers.Dense(9, "relu"), keras.layers.BatchNormalization(),
                                 keras.layers.Dropout(0.3), keras.layers.Dense(2, "softmax")])  # fmt: skip
        made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return made

    def other_loss() -> keras.Model:
        made = model()
        made.compile("adam", "mse", metrics=["accuracy"])
        return made

    dense = "Dense(trainable=True, units={}, activation=relu, use_bias=True)"
    loss = "SparseCategoricalCrossentropy(reduction=sum_over_batch_size, from_logits=False)"
    for make, received in (
        (wider, f"layer 0: {dense.format(9)}, where the checkpoint has {dense.format(8)}"),
        (executes_three, "optimizer: SGD, where the checkpoint has Adam"),
        (
            other_loss,
            f"loss: MeanSquaredError(reduction=sum_over_batch_size), where the checkpoint has {loss}",
        ),
    ):
        assert said_of(tmp_path / "run", make) == received


def said_of(run_dir: Path, make: Any) -> str:
    """What is said of a model with which the run cannot continue."""
    with pytest.raises(ArgumentError) as caught:
        train(run_dir, make, resume=True)
    rule, received, fix = str(caught.value).splitlines()
    assert rule == "Cannot resume: the model differs from the saved run."
    assert fix == "Fix: Pass the `model` function of the run, or start a new run in another `run_dir`."
    return received.removeprefix("Received: ")


class Scale(keras.layers.Layer):
    """Says nothing of its size."""

    def __init__(self, size: int, more: bool = False) -> None:
        super().__init__()
        self._size, self._more = size, more

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(self._size,), name="scale")
        if self._more:
            self.add_weight(shape=(), name="more")

    def call(self, x: Any) -> Any:
        return x * self.scale[0]

    def get_config(self) -> dict[str, Any]:
        return {}


def scaled(*arguments: Any) -> Any:
    def make() -> keras.Model:
        made = keras.Sequential([Scale(*arguments), keras.layers.Dense(2, "softmax")])
        made.compile("sgd", "sparse_categorical_crossentropy")
        return made

    return make


def test_so_is_one_that_only_its_variables_tell_from_the_model_of_the_run(tmp_path):
    train(tmp_path / "run", scaled(1), epochs=1)
    said = said_of(tmp_path / "run", scaled(2))
    assert re.fullmatch(r".*/scale of float32 \(2,\), where the checkpoint has float32 \(1,\)", said)
    said = said_of(tmp_path / "run", scaled(1, True))
    assert re.search(r"\d+ variables, where the checkpoint has \d+$|/more of float32 \(\), where", said)


@pytest.mark.slow(reason="trains three times")
def test_the_numbers_of_an_optimizer_may_be_others(tmp_path):
    def with_rate(rate: float) -> Any:
        def make() -> keras.Model:
            made = model()
            made.compile(keras.optimizers.Adam(rate), made.loss, metrics=["accuracy"])
            return made

        return make

    train(tmp_path / "run", with_rate(0.001), epochs=1)
    fit = train(tmp_path / "run", with_rate(0.5), epochs=2, resume=True)
    assert bits(fit) == bits(train(tmp_path / "full", with_rate(0.001), epochs=2))
