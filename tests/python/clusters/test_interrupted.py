"""Whatever ends the launcher itself, nothing of its job is left."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launched import CARRIERS, WORKERS, command, events_in, is_there, processes_of, wait_for
from slow import mostly_slow

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(params=CARRIERS)
def parent(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[[list[str]], tuple[subprocess.Popen[str], set[int]]]]:
    """A function that starts a program which runs two workers; gives it and their process ids."""
    started: list[subprocess.Popen[str]] = []

    def start(worker: list[str]) -> tuple[subprocess.Popen[str], set[int]]:
        program = [sys.executable, str(WORKERS / "parent.py"), request.param, "2", str(tmp_path), *worker]
        environment = os.environ | {"RUN_OF_TEST": str(tmp_path)}
        process = subprocess.Popen(program, stderr=subprocess.PIPE, text=True, env=environment)
        started.append(process)
        assert wait_for(lambda: len([e for e in events_in(tmp_path) if e["event"] == "ready"]) == 2, 50)
        return process, {event["pid"] for event in events_in(tmp_path) if "pid" in event}

    yield start
    for process in started:
        process.kill()
        process.communicate()
    wait_for(lambda: not processes_of(tmp_path), 5)
    left = processes_of(tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


@pytest.mark.parametrize(
    "worker", [command("wait"), command("ignore_sigterm")], ids=["wait", "ignore_sigterm"]
)
def test_ctrl_c_leaves_nothing(parent: Callable[..., Any], worker: list[str]) -> None:
    process, pids = parent(worker)
    process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in process.communicate(timeout=10)[1]
    assert process.returncode == -signal.SIGINT
    assert not [pid for pid in pids if is_there(pid)]


def test_a_second_ctrl_c_leaves_nothing_either(parent: Callable[..., Any]) -> None:
    process, pids = parent(command("ignore_sigterm"))
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=10)
    assert not [pid for pid in pids if is_there(pid)]


# A wrapper around the worker, such as a shell that does not exec, is its parent then.
WRAPPED = ["sh", "-c", '"$@"; true', "sh", *command("wait_with_grandchild")]


# Slow: the same code ends them after other signals.
@pytest.mark.parametrize(
    "number",
    mostly_slow([signal.SIGKILL, signal.SIGTERM, signal.SIGHUP], quick=[signal.SIGKILL, signal.SIGTERM]),
)
@pytest.mark.parametrize("worker", [command("wait_with_grandchild"), WRAPPED], ids=["direct", "wrapped"])
def test_the_workers_end_with_a_parent_that_is_killed(
    parent: Callable[..., Any], tmp_path: Path, worker: list[str], number: signal.Signals
) -> None:
    """And what they have started."""
    process, pids = parent(worker)

    def grandchildren() -> set[int]:
        return {event["pid"] for event in events_in(tmp_path) if event["event"] == "grandchild"}

    assert wait_for(lambda: len(grandchildren()) == 2, 10)
    pids |= grandchildren()
    assert all(map(is_there, pids))
    process.send_signal(number)
    assert process.wait(10) == -number
    assert wait_for(lambda: not any(map(is_there, pids)), 5)


def test_a_halted_worker_ends_with_a_parent_that_is_killed(parent: Callable[..., Any]) -> None:
    process, pids = parent(command("halt"))
    process.kill()
    process.wait(10)
    assert wait_for(lambda: not [pid for pid in pids if is_there(pid)], 5)


WAITS = """
import time
import keras, numpy as np, tfdistr

def model():
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

def waits():
    return [keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: time.sleep(60))]

if __name__ == "__main__":
    x = np.ones((64, 3), "float32")
    cluster = tfdistr.local_cluster(2)
    tfdistr.distributed_fit(model, x, x[:, 0], callbacks=waits, epochs=2, cluster=cluster, verbose=0)
"""


def test_sigterm_without_checkpoints_leaves_no_folder(tmp_path: Path) -> None:
    script, temporary = tmp_path / "waits.py", tmp_path / "temporary"
    script.write_text(WAITS)
    temporary.mkdir()
    process = subprocess.Popen([sys.executable, str(script)], env=os.environ | {"TMPDIR": str(temporary)})
    try:
        assert wait_for(lambda: any(map(has_begun, temporary.glob("tfdistr-????????"))), 50)
        process.terminate()
        assert process.wait(20) == -signal.SIGTERM
        assert wait_for(lambda: not list(temporary.glob("tfdistr-*")), 10)
    finally:
        process.kill()
        process.wait()


def has_begun(run_dir: Path) -> bool:
    return any(event["event"] == "epoch_begin" for event in events_in(run_dir))
