"""What a job says that is told to end or cannot have checkpoints, and what becomes of SIGTERM then."""

import logging
import signal
import subprocess
import sys
from types import SimpleNamespace

import keras
import pytest
from resumed import OwnFit, OwnLoop, train

from tfdistr.checkpoint.preemption import stopped
from tfdistr.errors import ArgumentError, JobStoppedError
from tfdistr.strategies.worker_strategy import SingleWorker
from tfdistr.training.job import Job
from tfdistr.training.recovery_options import Recovery
from tfdistr.training.train import _saves
from tfdistr.utils.function_files import FunctionByName


class Tells(keras.callbacks.Callback):
    """Sends SIGTERM to this process when a method is called."""

    def __init__(self, hook: str) -> None:
        super().__init__()
        setattr(self, hook, lambda *args: signal.raise_signal(signal.SIGTERM))


SEVERAL = SimpleNamespace(collectives=None, num_workers=2)
DEVICES, OWN_LOOP = "workers with several devices each", "and a model that Keras's own loop trains"


@pytest.mark.parametrize(
    ("strategy", "kind", "every", "asked", "received"),
    [
        (SEVERAL, keras.Sequential, "epoch", False, DEVICES),
        (SingleWorker(), OwnFit, "epoch", False, "a model with its own fit()"),
        (SEVERAL, keras.Sequential, "epoch", True, DEVICES),
        (SingleWorker(), OwnFit, 5, True, f"checkpoint_every=5, {OWN_LOOP}"),
        (SingleWorker(), OwnLoop, 5, True, f"checkpoint_every=5, {OWN_LOOP}"),
    ],
)
def test_a_job_that_cannot_have_checkpoints(strategy, kind, every, asked, received, caplog):
    job = Job(FunctionByName("model"), FunctionByName("data"), recovery=Recovery(every=every, asked=asked))
    events: list[str] = []
    if asked:
        with pytest.raises(ArgumentError, match="Checkpoints need one device of each worker;") as caught:
            _saves(job, strategy, kind(), events.append)
        assert caught.value.received == received
        return
    with caplog.at_level(logging.WARNING, logger="tfdistr"):
        assert not _saves(job, strategy, kind(), events.append)
    said = f"There are no checkpoints of {received}: each restart trains from the start."
    assert (caplog.messages, events) == ([said], ["unsaved"])


def test_the_error_is_written_out_where_nobody_may_catch_it(tmp_path, capfd):
    with pytest.raises(JobStoppedError) as caught:
        train(tmp_path / "run", epochs=2, callbacks=[Tells("on_epoch_begin")])
    assert f"{caught.value}\n" in capfd.readouterr().err


def test_the_error_of_a_worker_that_does_not_know_the_folder():
    assert str(stopped(None)).splitlines() == [
        "The job was preempted (SIGTERM) before its first checkpoint.",
        "Fix: Repeat the call with resume=True.",
    ]


def test_a_signal_that_comes_too_late_leaves_the_result_and_then_comes_again(tmp_path):
    seen: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    try:
        fit = train(tmp_path / "run", epochs=2, callbacks=[Tells("on_train_end")])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert len(fit.history["loss"]) == 2
    assert seen == [signal.SIGTERM]


PROGRAM = """
import signal
from tfdistr.checkpoint.preemption import Preemption

with Preemption() as preemption:
    signal.raise_signal(signal.SIGTERM)
print("the result", flush=True)
preemption.{then}()
print("too much")
"""


@pytest.mark.parametrize("then", ["pass_on", "release"])
def test_a_process_that_handles_no_signal_ends_by_it(then):
    ended = subprocess.run([sys.executable, "-c", PROGRAM.format(then=then)], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (-signal.SIGTERM, "the result\n"), ended.stderr
