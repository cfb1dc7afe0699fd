"""A user's program that runs workers: python parent.py WORKERS RUN_DIR WORKER_COMMAND..."""

from __future__ import annotations

import signal
import sys

from tfdistr.launch import local_cluster, run_workers

if __name__ == "__main__":
    # As in a terminal, also where the tests run in the background, which ignores these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    run_workers(local_cluster(int(sys.argv[1])), sys.argv[3:], sys.argv[2])
