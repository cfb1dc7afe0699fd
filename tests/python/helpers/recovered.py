"""Attempts to train one job, with faults: the last one must end as a job that had none."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import keras
import pytest
from launched import processes_of, wait_for
from resumed import bits, train

import tfdistr
from tfdistr.checkpoint.folder import CheckpointFolder, Position, checkpoint_folder
from tfdistr.errors import JobStoppedError
from tfdistr.supervision.events import EventReader

#: In the place of the number of a process: the one that starts the workers.
LAUNCHER = -1


class Strikes(keras.callbacks.Callback):
    """Sends signals, each once in a run, from whichever process comes to the batch first.

    Args:
        faults: For each signal the epoch, the batch, the number of the process that gets it, and the signal.
    """

    def __init__(self, run_dir: Path, *faults: tuple[int, int, int, int]) -> None:
        super().__init__()
        self._run_dir, self._faults, self._launcher, self._epoch = run_dir, faults, os.getpid(), -1

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        for *when, process, sent in self._faults:
            if [self._epoch, batch] == when:
                with contextlib.suppress(FileExistsError):
                    (self._run_dir / f"fault-{self._epoch}-{batch}").touch(exist_ok=False)
                    os.kill(last_started(self._run_dir, process) if process >= 0 else self._launcher, sent)


def last_started(run_dir: Path, process: int) -> int:
    events = EventReader(run_dir, process + 1).poll()
    started = [e["pid"] for e in events if e["event"] == "started" and e["worker"] == process]
    return int(started[-1])


def no_callbacks(folder: Path) -> list[Any]:
    return []


@dataclass(frozen=True)
class Attempt:
    """A call of ``distributed_fit()``.

    Attributes:
        fault: Makes the callbacks that cause the fault, from the folder of the run.
        error: What it raises; None if it ends well.
        said: A part of the error.
        then: Called with the folder of the run afterwards.
        given: The arguments that other attempts do not have.
    """

    fault: Callable[[Path], list[Any]] = no_callbacks
    error: type[BaseException] | None = None
    said: str = ""
    then: Callable[[Path], object] = no_callbacks
    given: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """Arguments of ``train``, and what makes callbacks that write into a folder."""

    given: Mapping[str, Any]
    callbacks: Callable[[Path], list[Any]] = no_callbacks

    def outcome(self, folder: Path, fit: tfdistr.FitResult) -> list[Any]:
        """The bits of a result, and what its callbacks have written; files of HDF5 have times in them."""
        files = sorted(path for path in folder.iterdir() if path.is_file())
        written = [
            (path.name, path.stat().st_size if ".h5" in path.name else path.read_text()) for path in files
        ]
        return [*bits(fit), *written]

    def trained(self, folder: Path) -> list[Any]:
        """What it gives without a fault."""
        return self.outcome(folder, train(folder / "run", callbacks=self.callbacks(folder), **self.given))

    def check(
        self, folder: Path, expected: Sequence[Any], attempts: Sequence[Attempt], **given: Any
    ) -> tfdistr.FitResult:
        """Make all attempts. The last one must have the ``expected`` outcome."""
        run, handler = folder / "run", signal.getsignal(signal.SIGTERM)
        for number, attempt in enumerate(attempts):
            options = {**self.given, **given, **attempt.given, "resume": number > 0}
            options["callbacks"] = [*self.callbacks(folder), *attempt.fault(run)]
            before = positions(run)
            if attempt.error is None:
                fit = train(run, **options)
            else:
                with pytest.raises(attempt.error, match=attempt.said) as caught:
                    train(run, **options)
                if isinstance(caught.value, JobStoppedError):
                    check_stopped(caught.value, run)
                    assert positions(run)[-1:] > before[-1:]
            assert wait_for(lambda: not processes_of(run), 10)
            attempt.then(run)
        assert signal.getsignal(signal.SIGTERM) is handler
        assert self.outcome(folder, fit) == expected
        if options.get("cluster"):
            again = train(run, **options | {"resume": True})  # the run is complete: no worker starts
            assert (bits(again), again.workers) == (bits(fit), fit.workers)
        return fit


def positions(run_dir: Path) -> list[Position]:
    return CheckpointFolder(checkpoint_folder(run_dir)).positions()


def check_stopped(error: JobStoppedError, run: Path) -> None:
    """Check the error of a job that was told to end."""
    assert isinstance(error, SystemExit)
    assert error.code == 75
    assert str(error).splitlines() == [
        f"The job was preempted (SIGTERM) and saved a checkpoint at {positions(run)[-1]}.",
        f"Fix: Repeat the call with run_dir='{run}' and resume=True.",
    ]
