"""The process of a server that a launcher has started.

python -m tfdistr.parameter_servers.server_process RUN_DIR INDEX
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tfdistr.checkpoint.folder import STOP, checkpoint_folder
from tfdistr.checkpoint.preemption import Preemption
from tfdistr.clusters.resources import take_cores
from tfdistr.rendezvous.config import cluster_from_env
from tfdistr.servers.server_task import serve
from tfdistr.supervision.reporting import process_of_job


def offer_feed_late(worker: int) -> None:
    """Let the chief's graphs read batches on this worker. This imports TensorFlow late."""
    from tfdistr.parameter_servers import feed

    feed.offer_feed(worker)


def run_server(run_dir: str, index: int) -> int:
    """Serve as process ``index`` of a job, and return the exit status of the process."""
    kept = checkpoint_folder(Path(run_dir))
    preemption = Preemption((kept / STOP).touch, active=kept.is_dir())
    with process_of_job(run_dir, index) as process, preemption:
        try:
            take_cores()
            config = cluster_from_env()
            assert config is not None  # the launcher has set it
            serve(config, on_ready=lambda: process.events.write("ready"), offer_more=offer_feed_late)
            process.done()
            return 0
        except BaseException as error:
            process.failed(error)
            return 1


if __name__ == "__main__":
    status = run_server(sys.argv[1], int(sys.argv[2]))
    sys.stdout.flush()
    sys.stderr.flush()
    # TensorFlow's server has threads that cannot be stopped: exit without the interpreter's shutdown.
    os._exit(status)
