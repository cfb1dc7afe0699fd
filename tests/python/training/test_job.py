"""What a job takes with it to the workers, and how."""

import mmap
import os
import stat
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import tfdistr
from tfdistr.data.source import Arrays, make_source
from tfdistr.errors import ArgumentError
from tfdistr.jobs.strategies import Mirrored, MultiWorkerMirrored
from tfdistr.training.job import Job
from tfdistr.utils.function_files import FunctionByName
from tfdistr.utils.pickles import load_value, save_value

X = np.arange(100_000.0).reshape(-1, 4)
FACTOR = 3


def there_and_back(value, folder):
    save_value(value, folder, "value")
    return load_value(folder, "value")


def job(**parts) -> Job:
    return Job(**{"model": lambda: "model", "data": make_source(X)} | parts)


def is_mapped(array: np.ndarray) -> bool:
    """Whether the array's memory is that of a file."""
    base = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap)


def test_a_job_comes_back_as_it_was(tmp_path):
    sent = job(
        validation=tfdistr.load_dataset("digits", "test"),
        batch_size=None,
        epochs=3,
        class_weight={0: 2.0},
        seed=7,
        shuffle=False,
    )
    sent.save(tmp_path, {})
    received = Job.load(tmp_path)
    assert received.model() == "model"
    assert received.params == sent.params
    assert received.params["seed"] == 7
    assert (received.validation, received.class_weight) == (sent.validation, {0: 2.0})
    np.testing.assert_array_equal(received.data.parts[0], X)


def test_the_strategy_can_be_made_before_the_job_is_read(tmp_path):
    sent = job(communication="ring", start_timeout=5.0)
    sent.save(tmp_path, MultiWorkerMirrored.arguments(sent))
    (tmp_path / "job.pkl").unlink()
    options = {
        "communication": "ring", "virtual_workers": None, "start_timeout": 5.0, "heartbeat_timeout": 30.0
    }  # fmt: skip
    assert Job.load_strategy(tmp_path) == ("multi_worker_mirrored", options)
    sent = job(strategy="mirrored", options={"devices": ["cpu:0"]})
    sent.save(tmp_path, Mirrored.arguments(sent))
    assert Job.load_strategy(tmp_path) == ("mirrored", {"devices": ["cpu:0"]})


def test_arrays_are_mapped_into_memory(tmp_path):
    save_value(
        {"a": Arrays((X, X[:, :1])), "small": np.arange(3), "empty": np.empty((0, 2))}, tmp_path, "value"
    )
    received = load_value(tmp_path, "value")
    x = received["a"].parts[0]
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(received["a"].parts[1], X[:, :1])
    assert received["empty"].shape == (0, 2)
    assert is_mapped(x)
    assert is_mapped(received["small"])
    assert x.flags.writeable  # as in the caller's process
    assert not x.flags.owndata
    assert x.ctypes.data % 64 == 0
    assert (tmp_path / "value.pkl").stat().st_size < X.nbytes / 2


def test_lambdas_and_closures_take_with_them_what_they_use(tmp_path):
    captured, number = X.copy(), 2

    def closure():
        return captured[:number] * FACTOR

    received, doubled = there_and_back((closure, lambda i: i * number), tmp_path)
    np.testing.assert_array_equal(received(), X[:2] * 3)
    assert doubled(4) == 8
    places = received.__code__.co_freevars
    assert is_mapped(received.__closure__[places.index("captured")].cell_contents)


def test_functions_of_main_and_of_own_modules(tmp_path):
    (tmp_path / "helper.py").write_text("def double(x):\n    return 2 * x\n")
    (tmp_path / "script.py").write_text(
        "import sys, numpy as np, helper\n"
        "from tfdistr.utils.pickles import save_value\n"
        "TABLE = np.arange(5)\n"
        "class Thing:\n"
        "    size = 3\n"
        "def function():\n"
        "    return helper.double(TABLE[Thing.size])\n"
        "if __name__ == '__main__':\n"
        "    save_value(function, sys.argv[1], 'value')\n"
    )
    subprocess.run([sys.executable, "script.py", str(tmp_path)], cwd=tmp_path, check=True, timeout=60)
    reader = f"from tfdistr.utils.pickles import load_value; print(load_value({str(tmp_path)!r}, 'value')())"
    read = subprocess.run([sys.executable, "-c", reader], capture_output=True, text=True, timeout=60, cwd="/")
    assert read.stdout == "6\n", read.stderr


def test_only_the_user_can_read_or_change_the_files(tmp_path):
    old = os.umask(0)
    try:
        save_value(X, tmp_path, "value")
    finally:
        os.umask(old)
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["value.buffers", "value.pkl"]


def test_named_parts_are_put_in_by_the_worker(tmp_path):
    names = {part: FunctionByName(f"r_{part}") for part in ("model", "data", "callbacks")}
    job(**names).save(tmp_path, {})
    callbacks = [SimpleNamespace(on_epoch_end=print)]
    put_in = {"r_model": len, "r_data": max, "r_callbacks": callbacks, "more": 0}
    received = Job.load(tmp_path, put_in)
    assert (received.model, received.data, received.validation) == (len, max, None)
    assert received.callbacks == callbacks


class Refuses:
    def __reduce__(self):
        raise RuntimeError("not me")


class NamedAndRefuses(Refuses):
    name = "confidence"


@pytest.mark.parametrize(
    ("objects", "refused"),
    [
        ([1, threading.Lock()], "an object of class _thread.lock: TypeError: cannot pickle '_thread.lock'"),
        ([Refuses(), Refuses()], f"an object of class {Refuses.__module__}.Refuses: RuntimeError: not me"),
        ([NamedAndRefuses()], f"an object of class {Refuses.__module__}.NamedAndRefuses named 'confidence': "
                              "RuntimeError: not me"),
    ],
)  # fmt: skip
def test_of_the_objects_of_r_functions_the_one_is_named(tmp_path, objects, refused):
    with pytest.raises(ArgumentError) as caught:
        save_value(objects, tmp_path, "objects")
    assert f"\nReceived: {refused}" in str(caught.value)


@pytest.mark.parametrize(
    ("thing", "received"),
    [
        (threading.Lock(), "TypeError: cannot pickle '_thread.lock' object"),
        (Refuses(), "RuntimeError: not me"),
    ],
)
def test_what_cannot_be_sent_is_refused(tmp_path, thing, received):
    with pytest.raises(ArgumentError, match=r"Cannot serialize the job for the workers\.") as caught:
        job(model=lambda: thing).save(tmp_path, {})
    assert caught.value.received == received
    assert not list(tmp_path.iterdir())
