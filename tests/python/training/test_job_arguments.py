"""The arguments of ``distributed_fit()``: what is taken, and what is said about the rest."""

import os
import stat
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from refusals import assert_says

import tfdistr
from tfdistr import on_failure, per_worker
from tfdistr.clusters.local.local_cluster import describe_local_cluster
from tfdistr.data.source import Arrays
from tfdistr.errors import ArgumentError, ClusterConfigError
from tfdistr.fit import distributed_fit
from tfdistr.jobs import run_dir as module
from tfdistr.jobs.run_dir import open_run_dir, temporary_run_dir
from tfdistr.training.job_arguments import make_job
from tfdistr.utils.arguments import check_bool, check_choice, check_int
from tfdistr.utils.function_files import FunctionByName

X = np.zeros((4, 2), "float32")
Y = np.zeros((4, 1), "float32")


def model() -> keras.Model:
    made = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return made


A_MODEL = "`model` must be a compiled Keras 3 model, or a function without arguments that returns one."
TWO, SERVED = describe_local_cluster(2), describe_local_cluster(2, ps=1)
A_CLUSTER = "`cluster` must be what local_cluster() or another function of clusters returns, or be left out."
VALIDATION = "`validation_data` must be inputs, (x, y), or (x, y, sample_weight)."
CALLBACKS = "`callbacks` must be a list of Keras callbacks, or a function that returns one."
MADE = "`callbacks` must be Keras callbacks, or a function that returns them."
CLASSES = "`class_weight` must map the numbers of classes to weights."
FAILURES = "`failures` must be what on_failure() returns."

# The arguments that differ from a valid call, or another call; then parts of the error.
REFUSED: list[tuple[dict[str, Any] | Callable[[], object], list[str]]] = [
    ({"failures": 3}, [FAILURES, "Received: a number (3)"]),
    ({"failures": "restart"}, [FAILURES, "Received: a text ('restart')"]),
    ({"failures": on_failure}, [FAILURES, "Received: a function"]),
    (lambda: on_failure(max_restarts=-1),
     ["`max_restarts` must be a whole number of", "Received: -1", "Fix: Pass max_restarts=1, for example."]),
    (lambda: on_failure(min_workers=0),
     ["`min_workers` must be a whole number of at", "Received: 0", "Fix: Pass min_workers=1, for example."]),
    (lambda: on_failure(step_timeout="60"),
     ["`step_timeout` must be a number of seconds", "Received: '60'",
      "Fix: Pass step_timeout=60.0, for example."]),
    (lambda: per_worker(0),
     ["`batch_size` must be a whole number of at", "Received: 0", "Fix: Pass batch_size=1, for example."]),
    (lambda: per_worker(8, scale_learning_rate="cubic"),
     ["`scale_learning_rate` must be one of", "Received: 'cubic'", "Fix: Use scale_learning_rate='none'."]),
    ({"validation_split": 0.2, "validation_data": (X, Y)},
     ["Give `validation_data` or", "Received: validation_data and validation_split=0.2"]),
    ({"validation_split": 0.999},
     ["`validation_split` must leave at least one",
      f"Received: validation_split=0.999, of {len(X)} examples", "Pass more examples, or validation_data."]),
    ({"initial_epoch": 3, "epochs": 3},
     ["`epochs`, where the training ends, must be", "Received: epochs=3, after 3 epochs that are done"]),
    ({"model": None}, [A_MODEL, "Received: None"]),
    ({"model": keras.Sequential()},
     ["`model` must be compiled.", "Received: a model that was not compiled",
      "Call model.compile(optimizer=..., loss=...) before."]),
    ({"model": lambda: 3},
     ["`model` must be a function that returns a", "Received: a function that returned a number (3)",
      "Return the model at the end of the function."]),
    ({"model": keras.Sequential},
     ["`model` must return a compiled model.", "Received: a model that was not compiled",
      "Call model.compile(optimizer=..., loss=...) in the function."]),
    ({"strategy": tfdistr.one_device(device="gpu:7")},
     ["`device` must name devices that this", "Received: 'gpu:7'", "Choose among cpu:0."]),
    ({"strategy": tfdistr.mirrored(devices=["cpu:0", "CPU:0"])},
     ["`devices` must name devices that this", "Received: 'cpu:0', 'CPU:0'"]),
    ({"strategy": "mirrored", "cluster": TWO},
     ["The strategy 'mirrored' trains in one", "Received: 2 workers, by the cluster"]),
    ({"cluster": SERVED},
     ["The strategy 'multi_worker_mirrored' has",
      "Received: 2 workers and 1 parameter server, by the cluster"]),
    ({"strategy": "parameter_server"},
     ["The strategy 'parameter_server' needs",
      "Received: 1 worker and 0 parameter servers, by no cluster and no"]),
    ({"strategy": "parameter_server", "cluster": TWO},
     ["The strategy 'parameter_server' needs",
      "Received: 2 workers and 0 parameter servers, by the cluster"]),
    ({"strategy": tfdistr.parameter_server(update="sync", replicas_to_aggregate=3), "cluster": SERVED},
     ["`replicas_to_aggregate` must be at most", "Received: replicas_to_aggregate=3, 2 workers",
      "Pass replicas_to_aggregate=2 or less, or start more workers."]),
    ({"cluster": 2}, [A_CLUSTER, "Received: a number (2)"]),
    ({"batch_size": tfdistr.per_worker},
     ["`batch_size` must be a whole number of at", "Received: a function",
      "Pass batch_size=1, for example."]),
    ({"validation_data": (X, Y, Y, Y)}, [VALIDATION, "Received: a tuple of 4"]),
    ({"validation_data": (X, Y[:2])},
     ["All arrays must have the same number of", "Received: validation_data: 4, y: 2"]),
    ({"callbacks": "stop"}, [CALLBACKS, "Received: a text ('stop')"]),
    ({"callbacks": [3]}, [MADE, "Received: a number (3)"]),
    ({"callbacks": [keras.callbacks.EarlyStopping]},
     [MADE, "Received: the class keras.src.callbacks.early_stopping.EarlyStopping"]),
    ({"callbacks": lambda: ["no"]}, [MADE, "Received: a text ('no')"]),
    ({"class_weight": {0: float("nan")}}, [CLASSES, "Received: {0: nan}"]),
    ({"class_weight": {"cat": 1.0}}, [CLASSES, "Received: {'cat': 1.0}"]),
    ({"class_weight": {0: 2.0}, "sample_weight": Y[:, 0]},
     ["Give `class_weight` or `sample_weight`,", "Received: class_weight and sample_weight"]),
    ({"seed": -1}, ["`seed` must be a whole number from 0 to", "Received: -1", "Pass seed=1, for example."]),
    ({"run_dir": True},
     ["`run_dir` must be a path.", "Received: True", 'Pass run_dir="results", for example.']),
]  # fmt: skip


def name_of(case: Any) -> str | None:
    return " ".join(case) if isinstance(case, dict) else ""


@pytest.mark.parametrize(("differing", "said"), REFUSED, ids=name_of)
def test_what_is_refused(differing, said):
    with pytest.raises(ArgumentError) as caught:
        differing() if callable(differing) else distributed_fit(
            **{"model": model, "x": X, "y": Y} | differing
        )
    assert_says(caught.value, said)


def test_options_in_words():
    assert str(on_failure()) == "on_failure()"
    in_words = str(on_failure(max_restarts=3.0, step_timeout=60))
    assert in_words == "on_failure(max_restarts=3, step_timeout=60.0)"
    size = per_worker(8.0, scale_learning_rate="sqrt")
    assert str(size) == 'per_worker(batch_size=8, scale_learning_rate="sqrt")'


def test_whole_numbers_may_come_as_doubles():
    job = make_job(
        model, X, Y, num_workers=2, batch_size=8.0, epochs=2.0, steps_per_epoch=3.0,
        validation_steps=np.float64(4), seed=7.0,
    )  # fmt: skip
    numbers = (job.batch_size, job.epochs, job.steps_per_epoch, job.validation_steps, job.seed)
    assert numbers == (8, 2, 3, 4, 7)
    assert {type(number) for number in numbers} == {int}


@pytest.mark.parametrize(("scale", "factor"), [("none", 1.0), ("linear", 4.0), ("sqrt", 2.0)])
def test_the_learning_rate_grows_with_the_workers(scale, factor):
    job = make_job(model, X, Y, num_workers=4, batch_size=tfdistr.per_worker(8, scale_learning_rate=scale))
    assert (job.batch_size, job.learning_rate_factor) == (32, factor)


def test_a_seed_is_drawn_unless_it_is_given():
    seeds = {make_job(model, X, Y, num_workers=1).seed for _ in range(3)}
    assert len(seeds) == 3
    assert make_job(model, X, Y, num_workers=1, seed=2**32 - 1).seed == 2**32 - 1


@pytest.mark.parametrize("make", [tuple, list])
def test_validation_data_is_a_tuple_or_a_list_or_like_x(make):
    source = make_job(model, X, Y, num_workers=1, validation_data=make([X, Y, Y])).validation
    assert isinstance(source, Arrays)
    assert len(source.parts) == 3
    alone = make_job(model, X, num_workers=1, validation_data=X).validation
    assert [part.shape for part in alone.parts] == [(4, 2)]


def test_class_weights_may_come_as_text_and_empty():
    assert make_job(model, X, Y, num_workers=1, class_weight={"1": 2}).class_weight == {1: 2.0}
    assert make_job(model, X, Y, num_workers=1, class_weight={}).class_weight is None


def test_one_callback_is_a_list_of_one():
    stopping = keras.callbacks.EarlyStopping()
    assert make_job(model, X, Y, num_workers=1, callbacks=stopping).callbacks == [stopping]


def test_functions_of_another_language_are_named():
    parts = [FunctionByName(name) for name in ("model", "data", "validation", "callbacks")]
    made, x, validation, callbacks = parts
    job = make_job(made, x, num_workers=1, batch_size=None, validation_data=validation, callbacks=callbacks)
    assert [job.model, job.data, job.validation, job.callbacks] == parts


def test_tasks_that_do_not_train_are_refused(monkeypatch):
    plan = tfdistr.tf_config(worker="127.0.0.1:1", ps="127.0.0.1:2", chief="127.0.0.1:3")
    monkeypatch.setenv("TF_CONFIG", plan[2].to_json())
    with pytest.raises(ClusterConfigError, match=r"distributed_fit\(\) joins a cluster as a") as caught:
        distributed_fit(model, X, Y)
    assert caught.value.received == "the task ps 0 in TF_CONFIG"


def test_a_run_directory_is_made_for_the_user_alone(tmp_path):
    old = os.umask(0)
    try:
        with open_run_dir(tmp_path / "a" / "b") as folder:
            pass
    finally:
        os.umask(old)
    assert folder == tmp_path / "a" / "b"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    with open_run_dir(str(folder)) as again:
        assert again == folder
    assert list(folder.iterdir()) == []


def test_a_run_directory_may_be_relative_to_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    with open_run_dir("~/run") as folder:
        assert folder == tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    with open_run_dir("other") as folder:
        assert folder == tmp_path / "other"


def test_a_temporary_run_directory_goes_at_exit_unless_it_is_kept():
    folder = temporary_run_dir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "file").write_text("")
    module.remove_temporary()
    assert not folder.exists()


@pytest.mark.parametrize("name", ["full", "file"])
def test_an_earlier_run_is_not_overwritten(tmp_path, name):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "job.pkl").write_text("")
    (tmp_path / "file").write_text("")
    with pytest.raises(ArgumentError) as caught:
        distributed_fit(model, X, Y, cluster=tfdistr.local_cluster(2), run_dir=tmp_path / name)
    assert_says(caught.value, ["`run_dir` must be a new or empty folder", f"Received: {tmp_path / name}"])


@pytest.mark.parametrize("value", [0, 11, 2.5, "2", True, None, [2], float("nan"), float("inf"), 2 + 0j])
def test_what_is_no_whole_number(value):
    with pytest.raises(ArgumentError) as caught:
        check_int("n", value, maximum=10)
    assert_says(caught.value, ["`n` must be a whole number from 1 to 10.", f"Received: {value!r}"])


def test_choices_and_flags():
    assert check_choice("c", "b", ["a", "b"]) == "b"
    assert check_bool("f", False) is False
    with pytest.raises(ArgumentError, match=r"`c` must be one of 'a', 'b'\.\nReceived: 1\nFix: Use c='a'"):
        check_choice("c", 1, ["a", "b"])
    with pytest.raises(ArgumentError, match="Received: 'c'"):
        check_choice("c", "c", ["a", "b"])
    with pytest.raises(ArgumentError, match=r"`f` must be true or false\.\nReceived: None\nFix: Pass f=True"):
        check_bool("f", None)
