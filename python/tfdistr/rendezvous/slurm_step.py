"""The cluster of a Slurm step: ``srun python train.py`` joins without TF_CONFIG.

Slurm sets environment variables in each task (``man srun``, "OUTPUT ENVIRONMENT VARIABLES"). The workers are
numbered in the order of the nodes, and on a node by SLURM_LOCALID. The Slurm rank (SLURM_PROCID) has another
order if ``--distribution`` is not "block": then the variables do not show on which node another rank is.
"""

from __future__ import annotations

import itertools
import os
import re
from functools import lru_cache

from tfdistr.errors import ClusterConfigError
from tfdistr.rendezvous.config import ClusterConfig, Task
from tfdistr.rendezvous.launcher_ranks import launcher_of
from tfdistr.rendezvous.tf_config import join_address
from tfdistr.schemas import show
from tfdistr.utils.processes import run_program

PORT = "TFDISTR_SLURM_PORT"
"""The environment variable with the port of worker 0; worker ``i`` listens on this port plus ``i``."""
# Below the ports that Linux uses for outgoing connections, and above the ports of most services.
_PORTS = range(16_000, 31_000)
_SCONTROL_TIMEOUT = 30.0
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_ADDRESS = re.compile(r"^NodeName=(\S+) .*?\bNodeAddr=(\S+)", re.MULTILINE)


def is_slurm_task() -> bool:
    """Return whether this process is one of several tasks of a Slurm step, each of them a worker.

    A task may also be an MPI rank (``srun --mpi=pmi2``). It is no worker if ``mpiexec`` runs in the task,
    because ``mpiexec`` starts ranks of its own.
    """
    told = launcher_of()
    slurm = launcher_of({name: value for name, value in os.environ.items() if name.startswith("SLURM_")})
    if told is None or slurm is None or slurm[2] < 2:
        return False
    return told[1] == slurm[1] and told[2] in (0, slurm[2]) and told[0] != "OMPI_COMM_WORLD_RANK"


def place_in_step() -> tuple[int, int] | None:
    """Return the index of this worker and the number of workers; None in a process that is no task."""
    if not is_slurm_task():
        return None
    counts = _tasks_of_nodes()
    node, local = _number("SLURM_NODEID"), _number("SLURM_LOCALID")
    if node >= len(counts) or local >= counts[node]:
        raise ClusterConfigError(
            "The variables of a Slurm task must fit together: SLURM_NODEID and SLURM_LOCALID must be in "
            "SLURM_STEP_TASKS_PER_NODE.",
            received=f"node {node}, task {local} there, and the tasks {_text('SLURM_STEP_TASKS_PER_NODE')}",
            fix="Start the script by srun itself, or set TF_CONFIG.",
        )
    return sum(counts[:node]) + local, sum(counts)


def place_on_node() -> tuple[int, int] | None:
    """Return the index of this worker on its node and the number of workers there, if they share all GPUs.

    None in a process that is no task, and with ``srun --gpus-per-task``, which gives each task its own GPUs.
    """
    try:
        if place_in_step() is None or os.environ.get("SLURM_GPUS_PER_TASK"):
            return None
    except ClusterConfigError:  # the cluster may not be that of Slurm; else the error comes later
        return None
    node, local = _number("SLURM_NODEID"), _number("SLURM_LOCALID")
    return local, _tasks_of_nodes()[node]


def slurm_cluster_from_env() -> ClusterConfig | None:
    """Derive the cluster of a Slurm step from the environment of one of its tasks."""
    place = place_in_step()
    if place is None:
        return None
    listed = _text("SLURM_STEP_NODELIST")
    nodes, counts = expand_hostlist(listed), _tasks_of_nodes()
    if len(nodes) != len(counts):
        raise ClusterConfigError(
            "SLURM_STEP_NODELIST and SLURM_STEP_TASKS_PER_NODE must have as many nodes.",
            received=f"{len(nodes)} nodes in {show(listed)}, {len(counts)} in "
            f"{show(_text('SLURM_STEP_TASKS_PER_NODE'))}",
            fix="Start the script by srun itself, or set TF_CONFIG.",
        )
    addresses = node_addresses(listed)
    hosts = [
        addresses.get(node, node) for node, count in zip(nodes, counts, strict=True) for _ in range(count)
    ]
    first = _first_port(len(hosts))
    workers = tuple(join_address(host, first + index) for index, host in enumerate(hosts))
    return ClusterConfig({"worker": workers}, Task("worker", place[0]))


def expand_hostlist(text: str) -> list[str]:
    """Return the names in a Slurm host list, in its order.

    Example:
        >>> expand_hostlist("n[9-11],gpu[01-02]-ib")
        ['n9', 'n10', 'n11', 'gpu01-ib', 'gpu02-ib']
    """
    names: list[str] = []
    for part in re.findall(r"(?:[^,\[\]]|\[[^\[\]]*\])+|[,\[\]]", text):
        if part == ",":
            continue
        pieces = [_expand_range(piece, text) for piece in re.split(r"(\[[^\]]*\])", part) if piece]
        names += ["".join(chosen) for chosen in itertools.product(*pieces)]
    if not names:
        raise _no_hostlist(text)
    return names


def _expand_range(piece: str, text: str) -> list[str]:
    if piece in ("[", "]"):
        raise _no_hostlist(text)
    if not piece.startswith("["):
        return [piece]
    found: list[str] = []
    for numbers in piece[1:-1].split(","):
        low, dash, high = numbers.partition("-")
        high = high if dash else low
        if not (low.isdecimal() and high.isdecimal()) or int(low) > int(high):
            raise _no_hostlist(text)
        # Slurm keeps leading zeros: the width is the width of the first number.
        found += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
    return found


def _no_hostlist(text: str) -> ClusterConfigError:
    return ClusterConfigError(
        "A node list must have the form that Slurm uses.",
        received=show(text),
        fix='Write it like "n[1-3],login".',
    )


def expand_counts(text: str) -> list[int]:
    """Return the numbers in a list such as SLURM_TASKS_PER_NODE, one for each node.

    Example:
        >>> expand_counts("2(x3),1")
        [2, 2, 2, 1]
    """
    counts: list[int] = []
    for part in text.split(","):
        match = _COUNT.fullmatch(part.strip())
        if match is None:
            raise ClusterConfigError(
                "The task counts of Slurm nodes must be numbers, one for each node.",
                received=show(text),
                fix='Write them like "2(x3),1".',
            )
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


@lru_cache(maxsize=8)
def node_addresses(nodes: str) -> dict[str, str]:
    """Return the addresses of nodes by their names, from Slurm; empty if ``scontrol`` does not answer."""
    said = run_program(["scontrol", "--oneliner", "show", "node", nodes], _SCONTROL_TIMEOUT)
    return dict(_ADDRESS.findall(said.output))


def _first_port(count: int) -> int:
    """Return the port of worker 0, on which all tasks of the step agree."""
    asked = os.environ.get(PORT)
    if asked is not None:
        if not asked.isdecimal() or not 0 < int(asked) <= 65_536 - count:
            raise ClusterConfigError(
                f"The environment variable {PORT} must be the port of the first of {count} workers.",
                received=show(asked),
                fix=f"Set it to a number from 1 to {65_536 - count}, or leave it out.",
            )
        return int(asked)
    job, step = _number("SLURM_JOB_ID"), _number("SLURM_STEP_ID")
    restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
    # Steps that run at the same time on a node must not share ports: neighbours are far apart.
    number = job * 1_009 + step * 131 + (int(restarts) if restarts.isdecimal() else 0) * 17
    return _PORTS.start + number % max(1, len(_PORTS) - count)


def _tasks_of_nodes() -> list[int]:
    return expand_counts(_text("SLURM_STEP_TASKS_PER_NODE"))


def _number(name: str) -> int:
    text = _text(name)
    if not text.isdecimal():
        raise ClusterConfigError(
            f"The environment variable {name} of a Slurm task must be a whole number.",
            received=show(text),
            fix="Start the script by srun itself, or set TF_CONFIG.",
        )
    return int(text)


def _text(name: str) -> str:
    if not os.environ.get(name):
        raise ClusterConfigError(
            f"A task of a Slurm step must have the environment variable {name}.",
            received="a task without it",
            fix="Start the script by srun itself, without --export=NONE, or set TF_CONFIG.",
        )
    return os.environ[name]
