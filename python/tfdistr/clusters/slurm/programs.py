"""The Slurm programs: their presence, their output, and the state of a job."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from tfdistr.errors import ClusterStartError
from tfdistr.rendezvous.slurm_step import expand_counts, expand_hostlist
from tfdistr.utils.processes import ProgramEnd, run_program

_TIMEOUT = 60.0  # seconds that a Slurm program may take: the controller may be busy
#: The states of a job that has ended.
ENDED = frozenset((
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED",
    "REVOKED", "TIMEOUT",
))  # fmt: skip
#: The states in which a job waits for its nodes.
WAITING = frozenset(("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"))
_PROBE = "from mpi4py import MPI; print('size', MPI.COMM_WORLD.Get_size())"


def check_programs(*programs: str) -> None:
    """Check that Slurm programs are on PATH."""
    absent = [program for program in programs if shutil.which(program) is None]
    if absent:
        raise ClusterStartError(
            "slurm_cluster() needs the Slurm programs.",
            received=f"no {' and no '.join(absent)} on PATH",
            fix="Call it on a login node or in a Slurm allocation, or pass local_cluster().",
        )


def ask_slurm(*command: str, env: Mapping[str, str] | None = None) -> ProgramEnd:
    """Run a Slurm program; see `run_program`."""
    return run_program(command, _TIMEOUT, env=env)


class State(NamedTuple):
    """The state of a job.

    Attributes:
        name: Slurm's name of the state, such as "PENDING"; "" if Slurm does not answer.
        reason: Slurm's reason for the state, such as "Resources".
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return self.name + (f" ({self.reason})" if self.reason not in ("", "None") else "")


_STATE = re.compile(r"\bJobState=(\S+) Reason=(.*?) Dependency=")


def state_of_job(job: str) -> State:
    """Return the state of a job. Slurm forgets a job some minutes after its end."""
    said = ask_slurm("scontrol", "--oneliner", "show", "job", job)
    match = _STATE.search(said.output)
    if match is not None:
        return State(match[1], match[2].replace("_", " ") if " " in match[2] else match[2])
    return State("COMPLETED", "") if "Invalid job id" in (said.failure or "") else State("", "")


# --- The allocation of this process


def in_allocation() -> bool:
    """Return whether this process runs in an allocation of ``salloc``, ``sbatch`` or ``srun``."""
    return bool(os.environ.get("SLURM_JOB_ID"))


def tasks_of_allocation() -> tuple[int, ...]:
    """Return the number of tasks on each node of the allocation; one each if the user set none."""
    nodes = len(nodes_of_allocation())
    named = any(os.environ.get(name) for name in ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"))
    counts = tuple(expand_counts(os.environ.get("SLURM_TASKS_PER_NODE", "1"))) if named else ()
    return counts if len(counts) == nodes else (1,) * nodes


def cores_of_allocation() -> tuple[int, ...]:
    """Return the number of processors of the allocation on each of its nodes; empty if they are not known."""
    text = os.environ.get("SLURM_JOB_CPUS_PER_NODE", "")
    return tuple(expand_counts(text)) if text else ()


def gpus_of_node() -> int:
    """Return the number of GPUs of the allocation on the node of a batch script; -1 if it is not known."""
    text = os.environ.get("SLURM_GPUS_ON_NODE", "")
    return int(text) if text.isdecimal() else -1


def nodes_of_allocation() -> list[str]:
    """Return the names of the nodes of the allocation."""
    names = (os.environ.get(name) for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST"))
    return expand_hostlist(next(filter(None, names), "localhost"))


# --- MPI


def mpi_of_srun(library: str, nodes: int) -> tuple[str | None, str]:
    """Find the ``--mpi`` option with which srun starts ranks of an MPI library, or say why there is none."""
    wanted = "pmix" if "Open MPI" in library else "pmi2"
    types = _mpi_types()
    if wanted not in types:
        return None, f"srun has no --mpi={wanted}, which {library.strip(chr(0))} needs"
    if in_allocation():
        why = _tried(os.environ["SLURM_JOB_ID"], wanted, min(nodes, 2))
        if why:
            return None, why
    return wanted, ""


@lru_cache(maxsize=1)
def _mpi_types() -> tuple[str, ...]:
    # Some versions of Slurm write the list to standard error.
    return tuple(ask_slurm("sh", "-c", "srun --mpi=list 2>&1").output.split())


@lru_cache(maxsize=4)
def _tried(job: str, kind: str, nodes: int) -> str:
    """Start two ranks in the allocation, once: "" if they are the ranks of one MPI job, else the reason."""
    command = ["srun", f"--mpi={kind}", "--overlap", "--kill-on-bad-exit=1", "--ntasks=2", f"--nodes={nodes}"]
    said = ask_slurm(*command, sys.executable, "-c", _PROBE, env=without_ranks(os.environ))
    if said.failure is None and said.output.split() == ["size", "2"] * 2:
        return ""
    why = said.failure or ", ".join(said.output.splitlines()) or "it says nothing"
    return f"two ranks of srun --mpi={kind} did not join: {why}"


def without_ranks(environ: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of the ranks of another job."""
    return {name: value for name, value in environ.items() if not name.startswith(_OF_RANKS)}


_OF_RANKS = ("PMI_", "PMIX_", "OMPI_", "PRTE_", "MPI_LOCAL", "HYDI_")
