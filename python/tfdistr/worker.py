"""The process of one worker: it reads the job, trains, reports, and leaves together with its peers."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tfdistr.errors import STOPPED_STATUS, JobStoppedError
from tfdistr.events import EventWriter, events_path
from tfdistr.launch.carrier import carrier_path
from tfdistr.launch.cores import take_cores
from tfdistr.launch.loopback import restore_preload
from tfdistr.launch.process import die_with_parent
from tfdistr.mpi import finish
from tfdistr.peer_failure import is_peer_failure, report
from tfdistr.watchdog import on_failure

log = logging.getLogger("tfdistr")


def run_worker(
    run_dir: str,
    index: int,
    functions: Mapping[str, Any] | None = None,
    *,
    foreign: Callable[[BaseException], tuple[str, str] | None] = lambda error: None,
) -> int:
    """Train as worker ``index`` of the job in ``run_dir`` and return the exit status of the process.

    It is 0 where the training is done, and ``STOPPED_STATUS`` where a SIGTERM has ended it.

    Args:
        run_dir: The run directory of the job.
        index: Index of this worker.
        functions: The functions of the job that come from another language, by name.
        foreign: Returns the class of an error and its call stack in the other language, if it is from there.
    """
    die_with_parent()
    restore_preload()
    events = EventWriter(run_dir, index)
    log_to(events)
    events.write("started", pid=os.getpid(), host=socket.gethostname())
    began = time.monotonic()
    strategy: Any = None
    # TensorFlow writes temporary files, which only the interpreter's end would remove.
    scratch = events_path(run_dir, index).with_name("tmp")
    scratch.mkdir(mode=0o700, exist_ok=True)
    tempfile.tempdir = str(scratch)
    try:
        from tfdistr.job import Job
        from tfdistr.strategies import STRATEGIES, make_strategy

        def last_words(error: BaseException, text: str) -> None:
            events.write(
                "failed", error_type=type(error).__name__, message=str(error), traceback=None,
                language="python", peer=False,
            )  # fmt: skip

        on_failure(last_words)
        name, options = Job.load_strategy(Path(run_dir), functions)
        if STRATEGIES[name].servers:
            from tfdistr.parameter_server.launch import train_as_chief

            chief = train_as_chief(Path(run_dir), options, events.write, functions)
            from tfdistr.result import save_training

            save_training(chief, Path(run_dir))
            events.write("done", seconds=time.monotonic() - began)
            return 0
        cores = take_cores()
        gc.disable()  # TensorFlow's modules make many objects, and no garbage
        from tfdistr.training import train

        gc.enable()
        strategy = make_strategy(name, **options)
        if strategy.is_chief:
            log.info(carrier_path(run_dir).read_text())
        job = Job.load(Path(run_dir), functions)
        log.info("cores: %s", ", ".join(map(str, cores)))
        events.write("ready")
        trained = train(job, strategy, events.write, Path(run_dir))
        if strategy.is_chief:
            from tfdistr.result import save_training

            save_training(trained, Path(run_dir))
        events.write("done", seconds=time.monotonic() - began)
        strategy.leave()
        finish()
        return 0
    except JobStoppedError as stopped:  # after the same step on all workers
        events.write("stopped", message=stopped.message, fix=stopped.fix)
        strategy.leave()
        finish()
        return STOPPED_STATUS
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        name, language = type(error).__name__, "python"
        elsewhere = foreign(error)
        if elsewhere is not None:
            (name, calls), language = elsewhere, "r"
            text = f"{text}\n{calls}"
        peer = is_peer_failure(error)
        events.write(
            "failed", error_type=name, message=str(error), traceback=text, language=language, peer=peer
        )
        print(text, file=sys.stderr, flush=True)
        if strategy is not None and not peer:
            strategy.report_failure(report(index, error))
        return 1
    finally:
        tempfile.tempdir = None
        shutil.rmtree(scratch, ignore_errors=True)


class _Warnings(logging.Handler):
    """Hands warnings on to the launcher, which shows them."""

    def __init__(self, events: EventWriter) -> None:
        super().__init__(logging.WARNING)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        self._events.write("warning", message=record.getMessage())


def log_to(events: EventWriter) -> None:
    """Write what tfdistr logs into this worker's log, and what the user should know to the launcher too."""
    log.setLevel(logging.INFO)
    written = logging.StreamHandler()
    written.setFormatter(logging.Formatter("%(asctime)s tfdistr %(levelname)s: %(message)s"))
    log.addHandler(written)
    log.addHandler(_Warnings(events))


def main() -> None:
    """Entry of a Python worker: ``python -m tfdistr.worker RUN_DIR INDEX``."""
    status = run_worker(sys.argv[1], int(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    # Past the interpreter's end: TensorFlow's threads may abort there when a peer has left already.
    os._exit(status)


if __name__ == "__main__":
    main()
