"""A user's program that runs workers: python parent.py CARRIER WORKERS RUN_DIR WORKER_COMMAND...

CARRIER is "processes", "mpi", or "hosts:SSH:HOST,HOST": so many workers on each of these hosts, by MPI; with
"ssh" in place of "hosts", without it. With "warm" or "warm-" before it, workers start warm, though without
TensorFlow.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from launched import SMALL_SERVER

from tfdistr.launch.cluster import Cluster
from tfdistr.launch.local import local_cluster
from tfdistr.launch.mpi_cluster import LocalMpi, mpi_cluster
from tfdistr.launch.ssh_cluster import ssh_cluster
from tfdistr.launch.supervisor import run_workers
from tfdistr.launch.warm import servers

if __name__ == "__main__":
    # As in a terminal, also where the tests run in the background, which ignores these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    carrier, workers, run_dir, *command = sys.argv[1:]
    warm, carrier = carrier.startswith("warm"), carrier.removeprefix("warm").removeprefix("-")
    servers._PYTHON = SMALL_SERVER
    cluster: Cluster
    if carrier.startswith(("hosts:", "ssh:")):
        kind, ssh, hosts = carrier.split(":")
        make = mpi_cluster if kind == "hosts" else ssh_cluster
        cluster = make(hosts.split(","), int(workers), ssh=ssh, warm=warm)
    else:
        here = local_cluster(int(workers), warm=warm)
        cluster = LocalMpi(here) if carrier == "mpi" else here
    run_workers(cluster, command, run_dir)
