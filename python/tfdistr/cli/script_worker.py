"""The process of a worker that runs a script. Its arguments: SCRIPT, those of the script, RUN_DIR, INDEX.

A script of Python runs in this process. A script of R runs in a process of its own, which ends with this one.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from tfdistr.cli.script_options import LANGUAGES
from tfdistr.errors import STOPPED_STATUS
from tfdistr.supervision.events import events_path
from tfdistr.supervision.reporting import ProcessOfJob, process_of_job

#: The environment variables by which R knows its script, and where it leaves its error.
SCRIPT, FAILURE, RSCRIPT = "TFDISTR_SCRIPT", "TFDISTR_FAILURE", "TFDISTR_RSCRIPT"
#: What R runs. The arguments follow.
_IN_R = "tfdistr:::run_script()"


def run(script: str, arguments: list[str], run_dir: str, index: int) -> int:
    """Run a script as worker ``index`` of the run in ``run_dir``, and return the exit status."""
    with process_of_job(run_dir, index, logs=False) as process:
        process.events.write("ready")
        if LANGUAGES[Path(script).suffix.lower()] == "r":
            status = _run_r(script, arguments, process, events_path(run_dir, index).with_name("failure.json"))
        else:
            status = _run_python(script, arguments, process)
        if status == 0:
            process.done()
        elif status == STOPPED_STATUS:
            process.events.write("stopped", message="The script was told to end (SIGTERM).", fix=None)
        return status


def _run_python(script: str, arguments: list[str], process: ProcessOfJob) -> int:
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as ended:
        return _status(ended)
    except BaseException as error:
        process.failed(_without_launcher(error, script), peer=_is_peer_failure(error))
        return 1
    return 0


def _status(ended: SystemExit) -> int:
    """The exit status that Python makes of it."""
    if ended.code is None or isinstance(ended.code, int):
        return ended.code or 0
    print(ended.code, file=sys.stderr)
    return 1


def _without_launcher(error: BaseException, script: str) -> BaseException:
    """The error with a traceback that begins in the script."""
    frame = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename != script:
        frame = frame.tb_next
    return error.with_traceback(frame) if frame is not None else error


def _is_peer_failure(error: BaseException) -> bool:
    if "tensorflow" not in sys.modules:
        return False  # it would take seconds to import
    from tfdistr.rendezvous.peer_failure import is_peer_failure

    return is_peer_failure(error)


def _run_r(script: str, arguments: list[str], process: ProcessOfJob, failure: Path) -> int:
    failure.unlink(missing_ok=True)
    # R leaves its folder for temporary files behind when it is killed.
    env = {**os.environ, SCRIPT: script, FAILURE: str(failure), "TMPDIR": tempfile.gettempdir()}
    command = [env.pop(RSCRIPT, "Rscript"), "-e", _IN_R, *arguments]
    # The descriptors of MPI's launcher are for R, too.
    started = subprocess.Popen(command, env=env, close_fds=False)
    # A signal for the group of processes comes to R, too. This process waits for what R makes of it.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    status = started.wait()
    if failure.exists():
        with contextlib.suppress(ValueError):  # a full disk has only a part of it
            process.events.write("failed", **json.loads(failure.read_text(encoding="utf-8")), language="r")
    return status if status >= 0 else 128 - status


def main() -> NoReturn:
    """The entry of the process."""
    script, *arguments, run_dir, index = sys.argv[1:]
    sys.exit(run(script, arguments, run_dir, int(index)))
