"""The cluster that TF_CONFIG describes, and the functions that read, check and write it.

``TF_CONFIG`` is an environment variable of TensorFlow. It holds a JSON object
with the addresses of every task of the cluster, by job, and with the task of
this process:

    {"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}

See https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

from tfdistr.errors import ArgumentError, ClusterConfigError
from tfdistr.rendezvous.tf_config import check_schema, endpoint, load_json, plain, split_address
from tfdistr.schemas import normalise, show
from tfdistr.utils.describe import number_of

JOBS = ("chief", "worker", "ps", "evaluator")
"""The jobs that a cluster can have, in the order in which they are listed."""
_AT_MOST_ONE = ("chief", "evaluator")


@dataclass(frozen=True)
class Task:
    """One process of a cluster.

    Args:
        type: The job of the task: "chief", "worker", "ps" or "evaluator".
        index: The index of the task in that job, from 0.

    Example:
        >>> print(Task("worker", 0))
        worker 0
    """

    type: str
    index: int

    def __str__(self) -> str:
        return f"{self.type} {self.index}"


@dataclass(frozen=True)
class ClusterConfig:
    """A valid TF_CONFIG: the cluster, and the task of this process.

    An ``evaluator`` is not part of the training cluster: as in TensorFlow, the task may be
    evaluator 0 although the cluster does not list an evaluator.

    Args:
        jobs: The addresses ("host:port") of the tasks of each job. Jobs without addresses are left out.
        task: The task of this process.
        extra: Other members of TF_CONFIG, such as "rpc_layer", unchanged.

    Raises:
        ClusterConfigError: If TensorFlow could not start this cluster.

    Example:
        >>> config = ClusterConfig({"worker": ("10.0.0.1:2222", "10.0.0.2:2222")}, Task("worker", 1))
        >>> config.num_workers, config.worker_index, config.is_chief
        (2, 1, False)
    """

    jobs: Mapping[str, tuple[str, ...]] = field(hash=False)
    task: Task
    extra: Mapping[str, object] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        # Objects built by hand and documents that were read get the same check: both become a document first.
        if not isinstance(self.extra, Mapping):
            raise ClusterConfigError(
                "`extra` must be a mapping of member names to values.",
                received=show(self.extra),
                fix='Pass for example extra={"rpc_layer": "grpc"}, or leave it out.',
            )
        this = vars(self.task) if isinstance(self.task, Task) else self.task
        jobs, task, extra = _read(plain({**self.extra, "cluster": self.jobs, "task": this}))
        object.__setattr__(self, "jobs", jobs)
        object.__setattr__(self, "task", task)
        object.__setattr__(self, "extra", extra)

    @classmethod
    def from_json(cls, text: str) -> ClusterConfig:
        """Read the text of a TF_CONFIG; see `parse_tf_config`."""
        return cls(*_read(plain(load_json(text))))

    @property
    def training_tasks(self) -> tuple[Task, ...]:
        """The tasks that train, in rank order: the chief if there is one, then the workers.

        With parameter servers ("ps") the chief only coordinates, and is not listed.
        """
        jobs = ("worker",) if "ps" in self.jobs else ("chief", "worker")
        return tuple(Task(job, index) for job in jobs for index in range(len(self.jobs.get(job, ()))))

    @property
    def num_workers(self) -> int:
        """Number of tasks that train."""
        return len(self.training_tasks)

    @property
    def worker_index(self) -> int | None:
        """The rank of this task among the tasks that train, from 0; None if it does not train."""
        return self.training_tasks.index(self.task) if self.task in self.training_tasks else None

    @property
    def is_chief(self) -> bool:
        """Return whether this task saves and logs for all tasks: it is the chief, or else worker 0."""
        return self.task == Task("chief" if "chief" in self.jobs else "worker", 0)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the tasks that train, in rank order."""
        return tuple(self.jobs[task.type][task.index] for task in self.training_tasks)

    @property
    def address(self) -> str | None:
        """The address of this task; None for an evaluator that the cluster does not list."""
        return self.jobs[self.task.type][self.task.index] if self.task.type in self.jobs else None

    def to_dict(self) -> dict[str, Any]:
        """Return TF_CONFIG as a dictionary, in the form that TensorFlow reads."""
        cluster = {job: list(addresses) for job, addresses in self.jobs.items()}
        return {"cluster": cluster, "task": {"type": self.task.type, "index": self.task.index}, **self.extra}

    def to_json(self) -> str:
        """Return TF_CONFIG as JSON text in ASCII, in the form that TensorFlow reads."""
        return json.dumps(self.to_dict())

    def to_env(self) -> dict[str, str]:
        """Return the environment variable TF_CONFIG for other processes.

        Returns:
            A dictionary with TF_CONFIG as JSON.
        """
        return {"TF_CONFIG": self.to_json()}

    def lines(self, language: str = "bash") -> list[str]:
        """Return the lines that set TF_CONFIG in a session.

        Paste them into the session of this task, before any other code runs there.

        Args:
            language: The language of the session: "bash", "r" or "python".

        Returns:
            A comment that names the task and its address, then the code, one string a line.

        Raises:
            ArgumentError: If `language` has another value.

        Example:
            >>> tf_config(worker="10.0.0.1:2222", type="worker", index=0).lines("python")[1]
            'import os'
        """
        text = self.to_json()
        # The quoting must work for any text: JSON escapes have backslashes, and members may have quotes.
        code = {
            "bash": [f"export TF_CONFIG={shlex.quote(text)}"],
            "r": ["Sys.setenv(TF_CONFIG = '{}')".format(text.replace("\\", "\\\\").replace("'", "\\'"))],
            "python": ["import os", f'os.environ["TF_CONFIG"] = {text!r}'],
        }
        name = language.lower() if isinstance(language, str) else ""
        if name not in code:
            raise ArgumentError(
                '`language` must be one of "bash", "r", "python".',
                received=show(language),
                fix='Pass the language of the session that the lines are for, such as language="bash".',
            )
        where = f", at {self.address}" if self.address else ""
        return [f"# {self.task}{' (the chief)' if self.is_chief else ''}{where}", *code[name]]

    def __str__(self) -> str:
        return self.to_json()


@dataclass(frozen=True)
class ClusterPlan:
    """The TF_CONFIG of every task of a cluster, for the session of each task.

    `tf_config` makes it. Iterating gives one `ClusterConfig` for each task. Printing it shows
    the lines to paste into the shell of each machine.

    Args:
        tasks: One `ClusterConfig` for each task.
    """

    tasks: tuple[ClusterConfig, ...]

    def __iter__(self) -> Iterator[ClusterConfig]:
        return iter(self.tasks)

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> ClusterConfig:
        return self.tasks[index]

    def to_json(self) -> str:
        """Return a JSON array with the TF_CONFIG of every task."""
        return json.dumps([config.to_dict() for config in self.tasks])

    def environments(self) -> list[dict[str, str]]:
        """Return the environment variable TF_CONFIG for other processes.

        Returns:
            A dictionary with TF_CONFIG as JSON, for every task.
        """
        return [config.to_env() for config in self.tasks]

    def lines(self, language: str = "bash") -> list[str]:
        """Return the lines that set TF_CONFIG in a session.

        Paste the lines of each task into its session. There is an empty line between tasks.

        Args:
            language: The language of the sessions: "bash", "r" or "python".

        Raises:
            ArgumentError: If `language` has another value.
        """
        blocks = [config.lines(language) for config in self.tasks]
        return [line for block in blocks for line in ("", *block)][1:]

    def __str__(self) -> str:
        title = f"# A cluster of {number_of(len(self), 'task')}: one session for each."
        return "\n".join([title, "", *self.lines("bash")])


@overload
def tf_config(
    worker: str | Sequence[str] | None = ...,
    ps: str | Sequence[str] | None = ...,
    chief: str | Sequence[str] | None = ...,
    type: None = ...,
    index: None = ...,
) -> ClusterPlan: ...


@overload
def tf_config(
    worker: str | Sequence[str] | None = ...,
    ps: str | Sequence[str] | None = ...,
    chief: str | Sequence[str] | None = ...,
    *,
    type: str,
    index: int,
) -> ClusterConfig: ...


def tf_config(
    worker: str | Sequence[str] | None = None,
    ps: str | Sequence[str] | None = None,
    chief: str | Sequence[str] | None = None,
    type: str | None = None,
    index: int | None = None,
) -> ClusterConfig | ClusterPlan:
    """Build TF_CONFIG from addresses.

    The result is for one task, or for every task of the cluster.

    Args:
        worker: Addresses "host:port" of the workers, in order. A plain string is one address.
        ps: Addresses of the parameter servers, if there are any.
        chief: Address of the chief, if it is a separate task. Without a chief, worker 0 is the chief. With
            `ps` a chief is needed.
        type: The job of the task to build TF_CONFIG for: "chief", "worker", "ps" or "evaluator".
        index: The index of that task in its job, from 0.

    Returns:
        The `ClusterConfig` of that task, with `type` and `index`. Without them, a `ClusterPlan` with the
        `ClusterConfig` of every task.

    Raises:
        ClusterConfigError: If the addresses are not a valid cluster, or the task is not in it.

    Example:
        >>> print(tf_config(worker=["10.0.0.1:2222", "10.0.0.2:2222"], type="worker", index=1).to_json())
        {"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 1}}
    """
    cluster = {"chief": chief, "worker": worker, "ps": ps}
    if (type is None) != (index is None):
        raise ClusterConfigError(
            "`type` and `index` name one task together: give both, or neither.",
            received=f"type = {show(type)}, index = {show(index)}",
            fix='Pass for example type="worker", index=0, or leave both out to get the plan of every task.',
        )
    if type is not None:
        return parse_tf_config({"cluster": cluster, "task": {"type": type, "index": index}})
    # Every cluster may have evaluator 0, so with this task only the addresses are checked.
    jobs = parse_tf_config({"cluster": cluster, "task": {"type": "evaluator", "index": 0}}).jobs
    tasks = [Task(job, position) for job, addresses in jobs.items() for position in range(len(addresses))]
    return ClusterPlan(tuple(ClusterConfig(jobs, task) for task in tasks))


def parse_tf_config(config: str | Mapping[str, object] | ClusterConfig) -> ClusterConfig:
    """Read a TF_CONFIG.

    Accepts all that TensorFlow accepts, and also the output of R's ``jsonlite::toJSON``, with and
    without ``auto_unbox = TRUE``: a bare value for a list with one element, a list with one element
    for a bare value, an empty list for a missing job, 0.0 for 0. `ClusterConfig.extra` holds members
    other than "cluster" and "task". Members of "task" other than "type" and "index" are ignored.

    Args:
        config: The JSON text, or the same document as a mapping.

    Raises:
        ClusterConfigError: If it is not valid. The message names the field, its value, and the fix.

    Example:
        >>> parse_tf_config('{"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0.0}}').jobs
        {'worker': ('a:1',)}
    """
    if isinstance(config, ClusterConfig):
        return config
    return ClusterConfig(*_read(plain(config if isinstance(config, Mapping) else load_json(config))))


def cluster_from_env(environ: Mapping[str, str] | None = None) -> ClusterConfig | None:
    """Read the cluster that TF_CONFIG describes.

    The environment variable may come from `tf_config`, from R, or from a platform that starts the processes.

    Args:
        environ: The environment; by default the environment of this process.

    Returns:
        The cluster, or None if TF_CONFIG is not set, is empty, or has neither a cluster nor a task
        (some platforms set "{}", or '{"cluster": {}}', for a job on one machine).

    Raises:
        ClusterConfigError: If TF_CONFIG is set but not valid.

    Example:
        >>> cluster_from_env({"TF_CONFIG": "{}"}) is None
        True
    """
    text = (os.environ if environ is None else environ).get("TF_CONFIG", "")
    if isinstance(text, str) and not text.strip():
        return None
    document = plain(load_json(text))
    members = {} if document == [] else document  # R writes an empty list as []
    if isinstance(members, dict) and all(members.get(name) in (None, {}, []) for name in ("cluster", "task")):
        return None
    return ClusterConfig(*_read(document))


def _read(document: Any) -> tuple[dict[str, tuple[str, ...]], Task, dict[str, Any]]:
    """Check a document, and return its jobs, its task and its other members in their normal form."""
    check_schema(document)
    normal = normalise("tf_config", document)
    cluster, task = normal["cluster"], normal["task"]
    jobs = {job: tuple(cluster[job]) for job in JOBS if cluster.get(job)}
    this = Task(task["type"], task["index"])
    _check_jobs(jobs)
    _check_task(jobs, this)
    return jobs, this, {name: value for name, value in document.items() if name not in ("cluster", "task")}


def _check_jobs(jobs: Mapping[str, tuple[str, ...]]) -> None:
    taken: dict[tuple[str, int], str] = {}
    for job, addresses in jobs.items():
        for index, address in enumerate(addresses):
            name = f"cluster.{job}[{index}]"
            place = endpoint(address, name)
            if place in taken:
                raise ClusterConfigError(
                    f"`{name}` must be an address of its own: two tasks cannot listen on one port.",
                    received=f"{show(address)}; {taken[place]}",
                    fix="Give each task its own machine, or its own port on the machine.",
                )
            taken[place] = f"{name} is {show(address)}"
    for job in _AT_MOST_ONE:
        if len(jobs.get(job, ())) > 1:
            raise ClusterConfigError(
                f"`cluster.{job}` must have one address: a cluster has at most one {job}.",
                received=show(jobs[job]),
                fix="Keep one address; the others may be workers, in `cluster.worker`.",
            )
    if "worker" not in jobs and ("chief" not in jobs or "ps" in jobs):
        raise ClusterConfigError(
            "`cluster` must have at least one address of a worker, or of a chief that trains without "
            "parameter servers.",
            received=f"addresses for {', '.join(jobs) or 'no job'}",
            fix='Add one, like "worker": ["10.0.0.1:2222"]. To train in this process alone, unset TF_CONFIG.',
        )
    if "ps" in jobs and "chief" not in jobs:
        raise ClusterConfigError(
            "A cluster with parameter servers must have a chief: the task that calls distributed_fit().",
            received=f"addresses for {', '.join(jobs)}",
            fix='Add one, like "chief": ["10.0.0.1:2223"]; it may run beside a worker.',
        )


def _check_task(jobs: Mapping[str, tuple[str, ...]], task: Task) -> None:
    # As in TensorFlow, the cluster need not list the one evaluator that it may have.
    tasks = len(jobs.get(task.type, ())) or (1 if task.type == "evaluator" else 0)
    if not tasks:
        raise ClusterConfigError(
            f"`task.type` must be a job of the cluster ({', '.join(jobs)}), or evaluator.",
            received=show(task.type),
            fix=f"Add the addresses of `cluster.{task.type}`, or correct the type.",
        )
    if task.index >= tasks:
        allowed = "0" if tasks == 1 else f"from 0 to {tasks - 1}"
        single = task.type in _AT_MOST_ONE
        more = (
            f": a cluster has at most one {task.type}"
            if single
            else f", or add addresses to `cluster.{task.type}`"
        )
        raise ClusterConfigError(
            f"`task.index` must be {allowed}: the cluster has {tasks} {task.type} "
            f"task{'' if tasks == 1 else 's'}, counted from 0.",
            received=show(task.index),
            fix=f"Correct the index{more}.",
        )


def bypass_proxy(addresses: Iterable[str]) -> None:
    """Let gRPC connect to the workers directly. If http_proxy is set, gRPC asks the proxy, and hangs."""
    names = ("no_grpc_proxy", "no_proxy")
    known = next((os.environ[name] for name in names if os.environ.get(name)), "").split(",")
    hosts = (split_address(address)[0] for address in addresses)
    os.environ[names[0]] = ",".join(dict.fromkeys(filter(None, [*known, *hosts])))
