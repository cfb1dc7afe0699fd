"""The process of a server that a launcher has started.

    python -m tfdistr.parameter_server.process RUN_DIR INDEX
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import time
import traceback

from tfdistr.cluster import cluster_from_env
from tfdistr.events import EventWriter, events_path
from tfdistr.launch.cores import take_cores
from tfdistr.launch.loopback import restore_preload
from tfdistr.launch.process import die_with_parent
from tfdistr.parameter_server.server import serve
from tfdistr.worker import log_to


def run_server(run_dir: str, index: int) -> int:
    """Serve as process ``index`` of the job in ``run_dir`` and return the exit status of the process."""
    die_with_parent()
    restore_preload()
    events = EventWriter(run_dir, index)
    log_to(events)
    events.write("started", pid=os.getpid(), host=socket.gethostname())
    began = time.monotonic()
    scratch = events_path(run_dir, index).with_name("tmp")
    shutil.rmtree(scratch, ignore_errors=True)  # of a process whose place this one takes
    scratch.mkdir(mode=0o700)
    tempfile.tempdir = str(scratch)
    try:
        take_cores()
        config = cluster_from_env()
        assert config is not None  # the launcher has set it
        serve(config, on_ready=lambda: events.write("ready"))
        events.write("done", seconds=time.monotonic() - began)
        return 0
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        fields = {"error_type": type(error).__name__, "message": str(error), "traceback": text}
        events.write("failed", **fields, language="python", peer=False)
        print(text, file=sys.stderr, flush=True)
        return 1
    finally:
        tempfile.tempdir = None
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    status = run_server(sys.argv[1], int(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    # Past the interpreter's end: TensorFlow's server has threads that cannot be ended.
    os._exit(status)
