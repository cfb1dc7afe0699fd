"""The connections between workers through ssh, for hosts that only this machine reaches.

A worker has a port on its host. This machine has a door to it: ssh leads from the door to the port. On each
other host, ssh leads from the same port back to the door. So the address 127.0.0.1 and this port lead to the
worker on every host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tfdistr.network.ports import free_ports

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Tunnels:
    """The tunnels of a cluster.

    Args:
        ports: The port of each worker, which must be free on all hosts.
        doors: The door of each worker, a port of this machine.
        workers_per_host: The number of workers on each host.
    """

    ports: Sequence[int]
    doors: Sequence[int]
    workers_per_host: int

    @classmethod
    def new(cls, workers: int, workers_per_host: int) -> Tunnels:
        """Make tunnels with ports that are free on this machine, which may be one of the hosts.

        Raises:
            ClusterStartError: This machine has too few free ports.
        """
        ports = free_ports(2 * workers)
        return cls(ports[:workers], ports[workers:], workers_per_host)

    def options(self, index: int) -> list[str]:
        """Return the ssh options of a worker. The first worker of a host has those of the ways back."""
        # A shared connection would keep the tunnels after the end of the job.
        options = ["-oControlMaster=no", "-oControlPath=none", "-oExitOnForwardFailure=yes",
                   f"-L{HOST}:{self.doors[index]}:{HOST}:{self.ports[index]}"]  # fmt: skip
        host = index // self.workers_per_host
        if index % self.workers_per_host == 0:
            options += [
                f"-R{HOST}:{port}:{HOST}:{door}"
                for other, (port, door) in enumerate(zip(self.ports, self.doors, strict=True))
                if other // self.workers_per_host != host
            ]
        return options
