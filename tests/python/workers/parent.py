"""A user's program that runs workers: python parent.py CARRIER WORKERS RUN_DIR WORKER_COMMAND...

CARRIER is "processes", "mpi", or "hosts:SSH:HOST,HOST": so many workers on each of these hosts.
"""

from __future__ import annotations

import signal
import sys

from tfdistr.launch import local_cluster, mpi_cluster, run_workers
from tfdistr.launch.mpi import LocalMpi
from tfdistr.launch.supervise import Cluster

if __name__ == "__main__":
    # As in a terminal, also where the tests run in the background, which ignores these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    carrier, workers, run_dir, *command = sys.argv[1:]
    cluster: Cluster = local_cluster(int(workers))
    if carrier == "mpi":
        cluster = LocalMpi(local_cluster(int(workers)))
    elif carrier.startswith("hosts:"):
        _, ssh, hosts = carrier.split(":")
        cluster = mpi_cluster(hosts.split(","), int(workers), ssh=ssh)
    run_workers(cluster, command, run_dir)
