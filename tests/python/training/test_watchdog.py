"""A process that makes no step for too long says where it is, whatever its main thread does."""

import subprocess
import sys
import time

import pytest
from clusters import PROGRAMS

from tfdistr.errors import ArgumentError
from tfdistr.training.job_arguments import make_job

pytestmark = [pytest.mark.timeout(60), pytest.mark.alone]


def run(where: str, timeout: float = 1.0) -> tuple[subprocess.CompletedProcess[str], float]:
    began = time.monotonic()
    command = [sys.executable, str(PROGRAMS / "watched.py"), where, str(timeout)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=40)
    return ended, time.monotonic() - began


@pytest.mark.parametrize("where", ["in Python", "session"])
def test_the_main_thread_raises_with_what_it_was_at(where):
    ended, seconds = run(where)
    assert seconds < 15
    lines = ended.stdout.splitlines()
    assert lines[0] == "raised: A worker made no step within 1 s, which is `step_timeout`."
    assert lines[1].startswith("Received: worker 0 on ")
    assert lines[1].endswith(" has made none for 1 s. Its main thread, innermost last:")
    assert lines[-3].endswith(", in stuck")
    assert lines[-2] == "    time.sleep(0.1)"
    assert lines[-1].startswith("Fix: See the stack for what it waits for")
    assert "in stuck" in ended.stderr  # all threads, by faulthandler
    assert ended.returncode == 0


@pytest.mark.parametrize("where", ["ignores", "stubborn"])
def test_a_main_thread_that_cannot_be_interrupted_is_ended_with_the_same_words(where):
    ended, seconds = run(where)
    assert seconds < 20
    assert ended.stdout == (
        "last words: StepTimeoutError: A worker made no step within 1 s, which is `step_timeout`.\n"
    )
    assert "StepTimeoutError: A worker made no step" in ended.stderr
    assert "time.sleep(0.1)" in ended.stderr
    assert ended.returncode == 1


def test_a_main_thread_that_keeps_the_interpreter_is_ended_with_its_stack():
    ended, seconds = run("in C with the lock")
    assert seconds < 15
    assert "Timeout (0:00:03)!" in ended.stderr
    assert "watched.py" in ended.stderr
    assert (ended.returncode, ended.stdout) == (1, "")


def test_a_worker_that_waits_is_not_blamed_before_the_last_resort_of_its_peer():
    ended, seconds = run("waits")
    assert "has made none for 10 s; it waits for worker 0. Its main thread" in ended.stdout
    assert 7 < seconds < 25


FIT = """
import time, keras, numpy as np, tfdistr

def model():
    made = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    {change}
    return made

waits = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep(30))
try:
    tfdistr.distributed_fit(model, np.ones((8, 1)), np.ones(8), callbacks=[waits], verbose=0,
                            failures=tfdistr.on_failure(step_timeout=2))
except tfdistr.StepTimeoutError as error:
    print(error.message, "in <lambda>" in error.received)
"""


# A step that hangs does so while it is compiled.
@pytest.mark.slow(reason="a process that imports TensorFlow")
@pytest.mark.parametrize(
    "change", ["", "made.train_step = lambda data: time.sleep(60)"], ids=["callback", "step"]
)
def test_without_workers_the_caller_gets_the_error(change):
    command = [sys.executable, "-c", FIT.format(change=change)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    expected = "A worker made no step within 2 s, which is `step_timeout`. True\n"
    assert ended.stdout == expected, ended.stderr


def test_steps_keep_it_quiet():
    assert run("steps")[0].stdout == "ended well\n"


@pytest.mark.parametrize("name", ["start_timeout", "heartbeat_timeout"])
def test_timeouts_are_seconds(name):
    with pytest.raises(ArgumentError, match=f"`{name}` must be a number of seconds above 0"):
        make_job(len, [[1.0]], [1.0], num_workers=1, **{name: 0})
