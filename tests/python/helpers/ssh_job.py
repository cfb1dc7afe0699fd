"""A job of workers on hosts by ssh, which do as their test says."""

from pathlib import Path
from typing import Any

import hosts
import launched_job
from launched import wait_for

from tfdistr.clusters.ssh.ssh_cluster import SshCluster, ssh_cluster


class Job(launched_job.Job):
    """Runs workers on hosts, and looks whether something is left there."""

    def __init__(self, net: hosts.Hosts, run_dir: Path) -> None:
        super().__init__(run_dir)
        self.net = net

    def cluster(self, names: str = "ab", each: int = 1, **options: Any) -> SshCluster:
        # The hosts reach each other by addresses only.
        addresses = [self.net.address(name) for name in names]
        return ssh_cluster(
            addresses, workers_per_host=each, **{"ssh": self.net.ssh, "warm": False, **options}
        )

    def left(self) -> list[str]:
        """What still runs on the hosts; the end of a process is seen a little late."""
        wait_for(lambda: not self.net.processes(), 5)
        return self.net.processes()
