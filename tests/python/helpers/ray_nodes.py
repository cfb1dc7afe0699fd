"""A Ray cluster of three nodes on this machine, as tests see it."""

import subprocess
import sys
from typing import Any

CPUS = 2  # of each node
# Prints the resources that are not free: those of actors and of placement groups.
_TAKEN = """
import ray, sys
ray.init(sys.argv[1], log_to_driver=False, logging_level=40)
whole, free = ray.cluster_resources(), ray.available_resources()
print({name: amount for name, amount in whole.items() if free.get(name, 0) != amount})
"""


class Ray:
    """The cluster, as the tests see it."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.address: str = cluster.address
        self.others = [self.add(), self.add()]

    def add(self) -> Any:
        return self.cluster.add_node(num_cpus=CPUS)

    def lose(self, place: int) -> None:
        """Kill a node, as if its machine were lost."""
        self.cluster.remove_node(self.others.pop(place), allow_graceful=False)

    def taken(self) -> str:
        """What is not free; "{}" if all is."""
        asked = subprocess.run(
            [sys.executable, "-c", _TAKEN, self.address], capture_output=True, text=True, timeout=60
        )
        return asked.stdout.strip() or asked.stderr
