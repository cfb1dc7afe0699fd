"""A user's program that runs workers: python parent.py CARRIER WORKERS RUN_DIR WORKER_COMMAND...

CARRIER is "processes", or "ssh:SSH:HOST,HOST": so many workers on each of these hosts. With "warm" or "warm-"
before it, workers start warm, though without TensorFlow.
"""

import signal
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from launched import SMALL_SERVER

from tfdistr.clusters.cluster import Cluster
from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.clusters.ssh.ssh_cluster import ssh_cluster
from tfdistr.fork_server import servers
from tfdistr.supervision.supervisor import run_workers

if __name__ == "__main__":
    # As in a terminal, also where the tests run in the background, which ignores these.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    carrier, workers, run_dir, *command = sys.argv[1:]
    warm, carrier = carrier.startswith("warm"), carrier.removeprefix("warm").removeprefix("-")
    servers._PYTHON = SMALL_SERVER
    cluster: Cluster
    if carrier.startswith("ssh:"):
        _, ssh, hosts = carrier.split(":")
        cluster = ssh_cluster(hosts.split(","), workers_per_host=int(workers), ssh=ssh, warm=warm)
    else:
        cluster = local_cluster(int(workers), warm=warm)
    run_workers(cluster, command, run_dir)
