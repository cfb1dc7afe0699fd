"""Callbacks, saving and mistakes in calls of Keras's fit, evaluate and predict on two workers."""

import csv
import json
from types import SimpleNamespace

import keras
import numpy as np
import pytest
from clusters import run_well
from xla_dumps import operations

import tfdistr

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.slow(reason="both workers run every option of Keras's loop"),
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """What both workers found, and the folder that they share."""
    shared = tmp_path_factory.mktemp("shared")
    own = [tmp_path_factory.mktemp(f"own-{index}") for index in range(2)]
    run_well("keras_calls.py", 2, *[[str(shared), str(folder)] for folder in own])
    found = [json.loads((folder / f"{index}.json").read_text()) for index, folder in enumerate(own)]
    return SimpleNamespace(found=found, chief=found[0], other=found[1], shared=shared, own=own)


def test_what_writes_runs_on_the_chief_alone(ran):
    batches = ["on_train_batch_end"] * 4
    assert ran.chief["writers"]["hooks"] == ["on_train_begin", *[*batches, "on_epoch_end"] * 2]
    assert ran.other["writers"]["hooks"] == []
    names = {path.name for path in ran.shared.iterdir()}
    assert {"best.keras", "log.csv", "board", "1-3.weights.h5", "2-2.weights.h5"} <= names
    assert len(list((ran.shared / "board" / "train").glob("events.*"))) == 1
    with (ran.shared / "log.csv").open() as file:
        assert [float(row["loss"]) for row in csv.DictReader(file)] == ran.other["writers"]["history"]["loss"]


def test_the_chief_alone_reads_the_metrics_of_all(ran):
    history = ran.other["writers"]["history"]
    assert ran.chief["writers"]["history"] == history
    read = ran.chief["writers"]["read"]
    for name in ("loss", "mae"):
        assert [metrics[name] for metrics in read] == pytest.approx(history[name], rel=1e-6)


def test_the_chief_saves_and_all_return(ran):
    for found in ran.found:
        assert found["saved"] == {"returned": [None, None], "same": True, "exported": True}


def test_all_stop_after_the_batch_or_epoch_in_which_one_wants_to(ran):
    stopped = {
        "batch 0": [1, 2], "epoch 0": [2, 8], "batch 1": [1, 2], "epoch 1": [2, 8],
        "chief only": [1, 3], "only one has it": [1, 1],
    }  # fmt: skip
    assert ran.chief["stopped"] == stopped
    assert ran.other["stopped"] == stopped


def test_who_decides_after_a_batch_is_told_the_metrics_of_all(ran):
    assert ran.chief["logs_of_batches"] == ran.other["logs_of_batches"]
    assert len(ran.chief["logs_of_batches"]) == 4
    # The last batch's logs are those of the epoch.
    assert ran.chief["logs_of_batches"][-1] == pytest.approx(
        {name: values[0] for name, values in ran.chief["writers"]["history"].items()}, rel=1e-6
    )


def test_a_loss_that_is_no_number_is_named_with_its_worker_and_step(ran):
    for row, worker in (("18", 0), ("29", 1)):
        for found in ran.found:
            said, steps, loss = found["not_a_number"][row]
            assert [line.partition(" of this training")[0] for line in said] == [
                f"The loss of worker {worker} is not finite since step 2"
            ]
            assert steps == 2  # where TerminateOnNaN ends the training on one worker, too
            assert loss == "[nan]"
    assert len(ran.other["not_a_number"]["said once"]) == 1


def test_all_go_on_from_a_backup_that_the_chief_has(ran):
    for found in ran.found:
        assert found["restored"]["epochs"] == 1
        assert found["restored"]["difference"] < 1e-6
    assert (ran.shared / "backup").is_dir()
    assert not (ran.own[1] / "backup").exists()


def test_what_needs_all_workers_is_refused_on_the_chief_alone(ran):
    assert ran.other["needs_all"] == []
    calls = ("train, evaluate or predict", "gather values")
    for said, what in zip(ran.chief["needs_all"], calls, strict=True):
        assert said.startswith(f"ArgumentError: A callback that runs on the chief alone cannot {what}:")


def test_a_fit_that_failed_before_its_first_step_leaves_nothing_in_the_way(ran):
    for found in ran.found:
        failed, left_behind, finite = found["after_a_failure"]
        assert failed
        assert left_behind  # or this would not test anything
        assert finite


def test_xla_compiles_what_lies_between_the_exchanges(ran):
    for found, own in zip(ran.found, ran.own, strict=True):
        assert found["compiled"]["said"] == []
        assert found["compiled"]["apart"] < 1e-6
        compiled = operations(own / "xla")
        assert compiled >= {"MatMul", "Tanh", "TanhGrad"}  # both passes
        assert not {name for name in compiled if "Collective" in name or "PyFunc" in name}


def test_data_that_ends_early_ends_the_epochs_of_all_and_the_chief_says_so(ran):
    said = "An epoch of fit() ended early: the data has only 4 batches for steps_per_epoch=5 and 2 epochs."
    assert ran.chief["ended_early"] == [[f"{said} Leave `steps_per_epoch` out, or repeat() the dataset."], 8]
    assert ran.other["ended_early"] == [[], 8]


@pytest.mark.parametrize(
    ("name", "received"),
    [
        ("epochs", "epochs: 2 on worker 0, 3 on worker 1"),
        ("steps", "steps_per_epoch: 3 on worker 0, 2 on worker 1; "
                  "batches of an epoch: 3 on worker 0, 2 on worker 1"),
        ("data", "batches of an epoch: 4 on worker 0, 2 on worker 1"),
        ("arrays", "examples: 50 on worker 0, 49 on worker 1"),
        ("validation", "validation_data: 4 batches of float32[4], float32[1] on worker 0, none on worker 1"),
        ("call", "call: fit on worker 0, evaluate on worker 1"),
    ],
)  # fmt: skip
def test_calls_that_differ_are_refused_before_the_first_step(ran, name, received):
    for found in ran.found:
        said = found["mistakes"][name].splitlines()
        assert said[0] == "JobMismatchError: All workers must run the same job."
        assert said[1].startswith(f"Received: {received}")


def test_models_that_differ_are_refused_with_the_layer(ran):
    for found in ran.found:
        rate, dropout = found["mistakes"]["rate"], found["mistakes"]["rate of dropout"]
        assert "Received: learning rates of new optimizers: 0.01 on worker 0, 0.02 on worker 1\n" in rate
        assert "Received: layer 1: Dropout(trainable=True, rate=0.1) on worker 0, " in dropout
        assert dropout.splitlines()[1].endswith("Dropout(trainable=True, rate=0.2) on worker 1")


def test_only_callbacks_can_be_marked():
    with pytest.raises(tfdistr.ArgumentError, match="`callback` must be a Keras callback"):
        tfdistr.chief_only(print)


def test_a_mark_changes_nothing_without_a_strategy():
    seen = []
    callback = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: seen.append(epoch))
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    assert tfdistr.chief_only(callback) is callback
    model.fit(np.ones((1, 1)), np.ones((1, 1)), epochs=2, verbose=0, callbacks=[callback])
    assert seen == [0, 1]
