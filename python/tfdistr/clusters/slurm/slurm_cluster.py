"""Clusters whose workers Slurm starts: in the allocation of this process, or in a job of its own."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs

from tfdistr.clusters.backend import Backend, mpi_library
from tfdistr.clusters.cluster import Cluster, workers_of_each_host
from tfdistr.clusters.environment import worker_defaults
from tfdistr.clusters.remote_worker import RemoteWorker
from tfdistr.clusters.slurm.programs import (
    check_programs,
    cores_of_allocation,
    gpus_of_node,
    in_allocation,
    mpi_of_srun,
    nodes_of_allocation,
    tasks_of_allocation,
)
from tfdistr.clusters.slurm.ranks import SlurmStep, Srun
from tfdistr.clusters.slurm.sbatch import BatchJob
from tfdistr.errors import ArgumentError, ClusterStartError
from tfdistr.rendezvous.slurm_step import is_slurm_task
from tfdistr.rendezvous.token import with_token
from tfdistr.schemas import show
from tfdistr.utils.arguments import argument, check_int, check_optional_int, check_text
from tfdistr.utils.describe import number_of
from tfdistr.utils.gpus import NO_GPU, VISIBLE, too_few_gpus

# The script of a job, where the user gives none.
_SCRIPT = """\
#!/bin/sh
{options}
{setup}
exec {command}
"""
# Minutes, minutes:seconds, hours:minutes:seconds, or days-hours with or without minutes and seconds.
_TIME = re.compile(r"\d+(:\d{1,2}){0,2}|\d+-\d{1,2}(:\d{1,2}){0,2}|UNLIMITED|INFINITE", re.IGNORECASE)
_WORD = re.compile(r"\S+")
_OPTION = re.compile(r"[a-z][a-z0-9-]*")
# The options that decide where the output is, and how many workers run.
_OWN = {
    "output": "follow", "error": "follow", "nodes": "nodes", "ntasks": "workers",
    "ntasks-per-node": "workers_per_host", "cpus-per-task": "cores_per_worker",
    "gpus-per-task": "gpus_per_worker", "partition": "partition", "time": "time", "account": "account",
    "array": "nodes", "wrap": "setup",
}  # fmt: skip


def _word(name: str) -> Any:
    """Make a field for a name that Slurm knows."""
    fix = f"Pass a {name} that exists (sinfo, sacctmgr show associations), or leave it out."
    return argument(check_text, name, _WORD, rule="a Slurm name, without spaces", fix=fix, default=None)


def _time_limit(name: str, value: object) -> str | None:
    """Return ``value``, if it is None or a Slurm time limit; a whole number means minutes."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = str(int(value)) if value > 0 and float(value).is_integer() else value
    return check_text(
        name, value, _TIME, rule="a Slurm time limit",
        fix=f'Pass {name}="30" for minutes, "2:30:00" for hours, or "1-12" for a day and 12 hours.',
    )  # fmt: skip


def _options(name: str, value: object) -> dict[str, str | bool]:
    """Check sbatch options, and return them as text; True is an option without a value."""
    if value is not None and not isinstance(value, Mapping):
        raise ArgumentError(
            f"`{name}` must map the long names of sbatch options to their values.",
            received=show(value),
            fix='Pass for example options={"mem": "8G", "exclusive": True}.',
        )
    found: dict[str, str | bool] = {}
    for key, given in (value or {}).items():
        option = key.replace("_", "-") if isinstance(key, str) else ""
        if not _OPTION.fullmatch(option):
            raise ArgumentError(
                f"Each name in `{name}` must be the long name of an sbatch option, without the dashes.",
                received=show(key),
                fix='Write it like "mem" or "gpus-per-task".',
            )
        if option in _OWN:
            raise ArgumentError(
                f"`{name}` must not have {option!r}: tfdistr sets it.",
                received=show(key),
                fix=f"Leave it out; see the argument `{_OWN[option]}` of slurm_cluster().",
            )
        number = isinstance(given, int | float) and not isinstance(given, bool)
        text = f"{given:g}" if number else given
        if text is not True and (not isinstance(text, str) or not text or re.search(r"[\r\n]", text)):
            raise ArgumentError(
                f"`{name}` must give {option!r} a value that is a text of one line, a number, or True.",
                received=show(given),
                fix='Pass for example options={"mem": "8G", "exclusive": True}.',
            )
        found[option] = text
    return found


def _lines(name: str, value: object) -> tuple[str, ...]:
    """Return the lines of ``value``: None, one text, or a list of texts."""
    listed = () if value is None else (value,) if isinstance(value, str) else value
    if not isinstance(listed, Sequence) or any(not isinstance(line, str) for line in listed):
        raise ArgumentError(
            f"`{name}` must be lines for a shell, as text.",
            received=show(value),
            fix='Pass setup=["module load cuda"], for example, or leave it out.',
        )
    return tuple(listed)


def _template(name: str, value: object) -> str | None:
    """Return ``value``, if it is None or a script with the places for the options and the command."""
    if value is None:
        return None
    text = value if isinstance(value, str) else ""
    absent = [place for place in ("{options}", "{command}") if place not in text]
    if absent or not text.startswith("#!"):
        raise ArgumentError(
            f"`{name}` must be a script that begins with #! and has the places {{options}} and {{command}}.",
            received=show(text.partition("\n")[0] or value)
            + (f", without {' and '.join(absent)}" if absent else ""),
            fix='Pass "#!/bin/sh\\n{options}\\n{setup}\\nexec {command}\\n", with lines of your own.',
        )
    return text


@attrs.frozen(kw_only=True)
class SlurmCluster(Cluster):
    """Workers that Slurm starts. `slurm_cluster` describes the arguments."""

    nodes: int | None = argument(check_optional_int, "nodes", default=None)
    workers_per_host: int | None = argument(check_optional_int, "workers_per_host", default=None)
    partition: str | None = _word("partition")
    time: str | None = argument(_time_limit, "time", default=None)
    account: str | None = _word("account")
    options: Mapping[str, str | bool] = argument(_options, "options", default=None)
    setup: Sequence[str] = argument(_lines, "setup", default=None)
    template: str | None = argument(_template, "template", default=None)
    #: The option --mpi of srun.
    mpi: str = "none"
    #: The nodes of the allocation that were lost.
    without_nodes: tuple[str, ...] = ()

    where: ClassVar[str] = "of Slurm's allocation"

    def __attrs_post_init__(self) -> None:
        if self.nodes is None and not in_allocation():
            raise ArgumentError(
                "Outside an allocation of Slurm, `nodes` must say how many nodes the job gets.",
                received="no `nodes`, and no SLURM_JOB_ID in the environment",
                fix="Pass nodes=2, for example, or call it in an allocation of salloc or sbatch.",
            )

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of workers on each node."""
        each = self.workers_per_host
        if self.nodes is not None and not in_allocation():
            return (each or 1,) * self.nodes
        told = tasks_of_allocation()
        kept = [
            count
            for count, node in zip(told, nodes_of_allocation(), strict=True)
            if node not in self.without_nodes
        ]
        count = len(kept) if self.nodes is None else self.nodes - len(self.without_nodes)
        # Where the cluster asks for more nodes than there are, check() refuses it.
        kept = [*kept, *[max(kept, default=1)] * count][:count]
        return tuple(kept if each is None else [each] * count)

    @property
    def workers(self) -> int:
        """The number of workers on all nodes together."""
        return sum(self.counts)

    def describe(self) -> str:
        """Say how many workers there are, and where."""
        where = "" if self.nodes is None else f", on {number_of(self.nodes, 'node')}"
        return f"{number_of(self.workers, 'worker')} by Slurm{where}"

    def check(self) -> None:
        """Check that Slurm is here, and that the allocation is large enough."""
        if is_slurm_task():
            raise ArgumentError(
                "slurm_cluster() is for one process, which starts the workers.",
                received="a task of srun, one of several that run this script",
                fix="Leave `cluster` out: the tasks of srun train together. Or run the script without srun.",
            )
        if not in_allocation():
            check_programs("sbatch", "scontrol", "scancel")
            return
        check_programs("srun", "scancel")
        self._check_allocation()

    def _check_allocation(self) -> None:
        nodes, cores = nodes_of_allocation(), cores_of_allocation()
        left = len([node for node in nodes if node not in self.without_nodes])
        wanted = len(self.counts)
        each = self.cores_per_worker or 1
        received = None
        if wanted > left:
            received = f"{number_of(left, 'node')}, and {wanted} asked for"
        elif cores and max(self.counts) * each > min(sorted(cores, reverse=True)[:wanted]):
            needed = max(self.counts) * each
            received = (
                f"nodes with {', '.join(map(str, cores))} processors, and {needed} asked for on a node: "
                f"{max(self.counts)} workers with {each} each"
            )
        elif 0 <= (gpus := gpus_of_node()) < self.counts[0] * (self.gpus_per_worker or 0):
            received = too_few_gpus(self.counts[0], self.gpus_per_worker or 0, gpus, "SLURM_GPUS_ON_NODE")
        asked = self.nodes or self.workers_per_host or self.cores_per_worker or self.gpus_per_worker
        if received is not None and asked:
            raise ClusterStartError(
                "The allocation of Slurm must have the nodes, processors and GPUs that the cluster asks for.",
                received=f"job {os.environ['SLURM_JOB_ID']} with {received}",
                fix="Ask salloc or sbatch for more. Without `nodes` and `workers_per_host` the workers are "
                "as the allocation says. Without SLURM_JOB_ID in the environment, it submits its own job.",
            )

    def requested_backend(self, communication: str) -> Backend:
        """Have srun make the ranks of an MPI that is not MPICH, which needs no launcher."""
        if communication != "mpi" or "MPICH" in (library := mpi_library()):
            return super().requested_backend(communication)
        option, why = mpi_of_srun(library, len(self.counts))
        if option is None:
            raise ClusterStartError(
                'communication="mpi" needs an MPI library that mpi4py and srun can use.',
                received=why,
                fix='Pass strategy=multi_worker_mirrored(communication="ring"), or '
                "install mpi4py with an MPI library that Slurm knows "
                "(srun --mpi=list).",
            )
        return Backend("mpi", attrs.evolve(self, mpi=option), "the caller asked for it")

    def start(self, command: Sequence[str], run_dir: str | os.PathLike[str]) -> Sequence[RemoteWorker]:
        """Start every worker once; see `Cluster.start`."""
        step = SlurmStep(command, run_dir, self.environments(), self.srun())
        job = Srun(step) if in_allocation() else BatchJob(step, self.script, self._start_timeout)
        return job.workers

    def srun(self) -> list[str]:
        """Return the command by which srun starts the ranks."""
        counts, here = self.counts, in_allocation()
        told = os.environ.get("SLURM_CPUS_PER_TASK", "") if here else ""
        cores = self.cores_per_worker or (int(told) if told.isdecimal() else None)
        line = ["srun", "--kill-on-bad-exit=1", "--quit-on-interrupt", "--distribution=block", "--export=ALL",
                f"--mpi={self.mpi}", f"--nodes={len(counts)}", f"--ntasks={sum(counts)}"]  # fmt: skip
        if len(set(counts)) == 1:
            line.append(f"--ntasks-per-node={counts[0]}")
        if cores is not None:
            line.append(f"--cpus-per-task={cores}")
        if self.gpus_per_worker:
            line.append(f"--gpus-per-task={self.gpus_per_worker}")
        if self.without_nodes:
            line.append(f"--exclude={','.join(self.without_nodes)}")
        if here:  # other steps may run beside it
            line.append("--overlap")  # otherwise the step of a shell has the cores
        return line

    def environments(self) -> list[dict[str, str]]:
        """The environment variables of each worker that are added to the variables of this process."""
        shares = self.shares(self.counts, by_slurm=True)
        no_gpu = {VISIBLE: NO_GPU} if self.gpus_per_worker == 0 else {}
        return with_token([{**share, **worker_defaults(self.env, self.tuning), **no_gpu} for share in shares])

    def without(self, worker: int, min_workers: int) -> SlurmCluster | None:
        """This cluster without the node of a worker; None if fewer than ``min_workers`` would be left."""
        counts = self.counts
        lost = next(node for node, end in enumerate(itertools.accumulate(counts)) if worker < end)
        if len(counts) == 1 or sum(counts) - counts[lost] < min_workers:
            return None
        if not in_allocation():  # Slurm gives the next job no node that is lost
            return attrs.evolve(self, nodes=len(counts) - 1)
        kept = [node for node in nodes_of_allocation() if node not in self.without_nodes]
        return attrs.evolve(self, without_nodes=(*self.without_nodes, kept[lost]))

    def script(self, command: Sequence[str]) -> str:
        """Return the script of a job, which runs ``command``."""
        own: dict[str, str | bool] = {
            "job-name": "tfdistr", "nodes": str(len(self.counts)), "ntasks-per-node": str(self.counts[0]),
        }  # fmt: skip
        if self.cores_per_worker is not None:
            own["cpus-per-task"] = str(self.cores_per_worker)
        if self.gpus_per_worker:
            own["gpus-per-task"] = str(self.gpus_per_worker)
        named = {"partition": self.partition, "time": self.time, "account": self.account}
        given = {name: value for name, value in named.items() if value is not None}
        # The caller submits the job again, as max_restarts says.
        options = "\n".join(
            f"#SBATCH --{name}" + ("" if value is True else f"={shlex.quote(str(value))}")
            for name, value in {**own, **given, "no-requeue": True, **self.options}.items()
        )
        text = self.template or _SCRIPT
        parts = {"options": options, "setup": "\n".join(self.setup), "command": shlex.join(command)}
        for name, part in parts.items():
            text = text.replace("{" + name + "}", part)
        return text.rstrip("\n") + "\n"


def slurm_cluster(
    nodes: int | None = None,
    *,
    workers: int | None = None,
    workers_per_host: int | None = None,
    partition: str | None = None,
    time: str | None = None,
    account: str | None = None,
    options: Mapping[str, object] | None = None,
    setup: str | Sequence[str] | None = None,
    template: str | None = None,
    cores_per_worker: int | None = None,
    gpus_per_worker: int | None = None,
    env: Mapping[str, str] | None = None,
    follow: bool = False,
    tuning: bool = True,
    start_timeout: float | None = None,
    heartbeat_timeout: float = 30.0,
) -> SlurmCluster:
    """Describe a cluster of workers that Slurm starts.

    This call starts nothing. In an allocation of ``salloc`` or ``sbatch``, `distributed_fit` starts the
    workers by one ``srun``. Elsewhere, on a login node for example, it submits a job by ``sbatch``, shows the
    state of the job while it waits in the queue, and waits for its end. The job is cancelled when the call
    ends early: by Ctrl-C, by an error, or with the process. All nodes must see the run directory, this Python
    and tfdistr at the same paths; by default the run directory is a new folder of the working directory.

    A script that ``srun`` itself starts needs no cluster: its tasks train together.

    Args:
        nodes: The number of nodes, a whole number of at least 1; by default all nodes of the allocation.
        workers: The number of workers on all nodes together, the same number on each.
        workers_per_host: The number of workers on each node, instead of ``workers``; by default as the
            allocation says, or 1.
        partition: The partition of the job. This argument and the next five are for ``sbatch``, so they are
            not used in an allocation.
        time: The time limit of the job, as Slurm takes it: "30" are minutes, "2:30:00" hours, "1-12" a day
            and 12 hours.
        account: The account that the job is charged to.
        options: Other options of ``sbatch``, by their long names: ``{"mem": "8G", "exclusive": True}``.
        setup: Lines for the shell of the job before the workers start, such as "module load cuda".
        template: The text of the whole script of the job, with ``{options}``, ``{setup}`` and ``{command}``
            where the lines ``#SBATCH``, the lines of ``setup`` and the command of the workers belong.
        cores_per_worker: The number of processors of each worker (``--cpus-per-task``); by default as the
            allocation says, or the default of Slurm.
        gpus_per_worker: The number of GPUs of each worker (``--gpus-per-task``), which sees only its own. 0
            hides all GPUs. By default each worker sees one of those that Slurm gives it.
        env: Environment variables for the workers, text to text, added to the variables of this process.
        follow: Whether to show the output of the workers at once, each line after "[worker 1] ".
        tuning: Whether to choose settings that make TensorFlow fast on its processor; see `local_cluster`.
        start_timeout: Seconds that the job may wait in the queue (then it is cancelled), and seconds from its
            start until every worker must have joined the cluster. By default the job may wait for any time,
            and the workers have 300 seconds.
        heartbeat_timeout: Seconds without a heartbeat after which a worker counts as lost; see
            `local_cluster`.

    Returns:
        The cluster, to be passed to `distributed_fit`.

    Raises:
        ArgumentError: An argument does not have this form, ``workers`` and ``workers_per_host`` contradict
            each other, or ``nodes`` is left out outside an allocation.

    Example:
        >>> slurm_cluster(nodes=2, workers_per_host=4, partition="gpu", time="1:00:00").workers
        8
    """
    given = dict(locals())
    del given["workers"]
    if workers is not None:
        places = _spread(check_int("workers", workers), nodes, workers_per_host)
        given["nodes"], given["workers_per_host"] = places
    return SlurmCluster(**given)


def _spread(workers: int, nodes: int | None, workers_per_host: int | None) -> tuple[int | None, int | None]:
    """The nodes, and the number of workers on each, of ``workers`` on all nodes together."""
    count = check_optional_int("nodes", nodes)
    if count is None and in_allocation():
        there = len(nodes_of_allocation())
        count = workers if workers < there and workers_per_host is None else there
    if count is None:  # the class says that `nodes` is missing
        return None, workers_per_host
    return count, workers_of_each_host(workers, workers_per_host, count, "node")
