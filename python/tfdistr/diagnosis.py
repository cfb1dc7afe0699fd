"""``doctor()``: a diagnosis of problems that keep a cluster from starting; and the report for a bug."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfdistr._version import __version__
from tfdistr.clusters.ssh.host_facts import versions_here
from tfdistr.clusters.ssh.survey import (
    BAD,
    CLOCKS,
    NONE,
    OK,
    VERSIONS_OF_R,
    Row,
    ask_hosts,
    check_hosts,
    findings,
    marker_in,
    r_request,
    words_of_ssh,
)
from tfdistr.collectives.mpi.world import PRINT_LIBRARY
from tfdistr.errors import ArgumentError, ClusterConfigError
from tfdistr.rendezvous.config import ClusterConfig, cluster_from_env, parse_tf_config
from tfdistr.rendezvous.pods import kubernetes_cluster_from_env
from tfdistr.rendezvous.protocol import absence, listening_socket, look_up_host, no_port, printable
from tfdistr.rendezvous.slurm_step import slurm_cluster_from_env
from tfdistr.rendezvous.survey import answer_at
from tfdistr.rendezvous.tf_config import split_address
from tfdistr.supported import SUPPORTED, is_supported, requirement
from tfdistr.utils.arguments import check_positive, read_text
from tfdistr.utils.describe import number_of
from tfdistr.utils.gpus import of_one_process, visible_gpus
from tfdistr.utils.packages import PACKAGES, data_frame, version_of
from tfdistr.utils.processes import ProgramEnd, run_program

_RETICULATE = (1, 41)
_COLUMNS = ["check", "status", "found", "fix"]
_TENSORFLOW = (
    "import json, os; os.environ['TF_CPP_MIN_LOG_LEVEL'] = '3'; import tensorflow as tf; "
    "print(json.dumps([d.name for d in tf.config.list_physical_devices('GPU')]))"
)
#: Seconds that the import of TensorFlow may take, also from a slow disk.
_IMPORT = 120.0


@dataclass(frozen=True)
class Diagnosis:
    """The results of ``doctor()``.

    Attributes:
        rows: One row for each check.
    """

    rows: Sequence[Row]

    @property
    def ok(self) -> bool:
        """Return whether no check failed."""
        return all(row.status != BAD for row in self.rows)

    def columns(self) -> dict[str, list[str]]:
        """Return the rows by column."""
        return {name: [getattr(row, name) for row in self.rows] for name in _COLUMNS}

    def to_frame(self) -> Any:
        """Return the rows as a pandas data frame."""
        return data_frame(list(self.rows), _COLUMNS)

    def __str__(self) -> str:
        return self.table()

    def table(self, *, color: bool = False) -> str:
        """Return the rows as text.

        Args:
            color: Whether the rows of failed checks are red (ANSI escape codes).
        """
        widths = [max(len(row[i]) for row in self.rows) for i in range(2)]
        lines = []
        for row in self.rows:
            line = f"{row.check:{widths[0]}}  {row.status:{widths[1]}}  {row.found}"
            lines.append(f"\033[31m{line}\033[0m" if color and row.status == BAD else line)
            if row.fix:
                lines.append(f"{'':{sum(widths) + 4}}Fix: {row.fix}")
        failed = sum(row.status == BAD for row in self.rows)
        summary = f"{failed} of {len(self.rows)} checks failed." if failed else "All checks passed."
        return "\n".join([*lines, summary])


def doctor(
    config: object = None,
    *,
    hosts: Sequence[str] | None = None,
    timeout: float = 20.0,
    ssh: str | None = None,
    run_dir: str | os.PathLike[str] | None = None,
    rscript: str | None = None,
) -> Diagnosis:
    """Look for problems that keep a cluster from starting.

    It checks, from this machine, the form of TF_CONFIG, whether the names of all tasks resolve, whether the
    port of this task is free, whether the ports of its peers can be reached, the clocks, the versions of the
    packages that matter, the GPUs, R and reticulate. It changes nothing and does not import TensorFlow into
    this process. No check takes longer than ``timeout``, except the import of TensorFlow in a separate
    process (at most 2 minutes). Run it on each machine. Workers that wait for their peers answer it, too.

    With ``hosts``, it looks at these hosts, all at once by ssh, and compares them with each other and with
    this machine: the versions of Python, tfdistr, TensorFlow and Keras, the clocks, whether each knows the
    names of all, free ports, cores and free memory. It makes an empty file in ``run_dir``, looks whether each
    host sees it, and removes it.

    Args:
        config: The cluster: TF_CONFIG as text, as a mapping or as a ``ClusterConfig``; by default, the
            environment variable TF_CONFIG.
        hosts: Hosts for ``ssh_cluster()``, instead of ``config``. They must let this
            user in by ssh.
        timeout: Seconds that each check may take.
        ssh: The program that reaches the hosts, and its options; see ``ssh_cluster()``.
        run_dir: The folder that all hosts must see; by default the working directory.
        rscript: The path of Rscript; by default the one on PATH.

    Returns:
        A ``Diagnosis`` with ``rows`` (check, status, found, fix), ``ok`` and ``to_frame()``; ``print()``
        shows a table.

    Raises:
        ArgumentError: An argument is not of the form above.

    Example:
        >>> found = tfdistr.doctor({"cluster": {"worker": ["127.0.0.1:2222"]},
        ...                         "task": {"type": "worker", "index": 0}})
        >>> found.rows[0].status
        'ok'
    """
    seconds = check_positive("timeout", timeout, of=" of seconds", example="20.0")
    if hosts is not None and config is not None:
        raise ArgumentError(
            "Give `config` or `hosts`, not both.", received="config and hosts", fix="Leave one of them out."
        )
    checks: list[Callable[[], list[Row]]] = []
    given = [name for name, value in (("ssh", ssh), ("run_dir", run_dir)) if value is not None]
    if hosts is None and given:
        raise ArgumentError(
            "`ssh` and `run_dir` are for `hosts`.",
            received=f"{' and '.join(given)}, and no hosts",
            fix='Pass hosts=["a", "b"], for example, or leave them out.',
        )
    if hosts is not None:
        check_hosts(hosts)
        words_of_ssh(ssh)
        checks = [lambda: _hosts(hosts, ssh, run_dir, rscript, seconds)]
    else:
        rows, cluster = _syntax(config)
        checks.append(lambda: rows)
        if cluster is not None:
            checks.append(lambda: _addresses(cluster, seconds))
    checks += [_packages, lambda: _mpi(seconds), lambda: _gpus(seconds), lambda: _r(rscript, seconds)]
    with ThreadPoolExecutor(8) as pool:
        return Diagnosis([row for rows in pool.map(lambda check: check(), checks) for row in rows])


# --- The cluster


def _syntax(config: Any) -> tuple[list[Row], ClusterConfig | None]:
    by = "TF_CONFIG"
    try:
        cluster = cluster_from_env() if config is None else parse_tf_config(config)
        if cluster is None:
            by = "Slurm"
            cluster = slurm_cluster_from_env()
        if cluster is None:
            by = "Kubernetes"
            cluster = kubernetes_cluster_from_env()
    except ClusterConfigError as error:
        found = error.message + (f" Received: {error.received}" if error.received is not None else "")
        return [Row(by, BAD, found, error.fix or "")], None
    if cluster is None:
        return [Row("TF_CONFIG", NONE, "not set: one process, or a cluster such as local_cluster()")], None
    titles = {"ps": "parameter server"}
    jobs = ", ".join(
        number_of(len(members), titles.get(job, job)) for job, members in cluster.jobs.items() if members
    )
    return [Row(by, OK, f"{cluster.task} of a cluster of {jobs}")], cluster


def _addresses(cluster: ClusterConfig, timeout: float) -> list[Row]:
    own = str(cluster.task)
    tasks = {f"{job} {i}": a for job, members in cluster.jobs.items() for i, a in enumerate(members)}
    loopback = [n for n, a in tasks.items() if split_address(a)[0] in ("localhost", "127.0.0.1", "::1")]
    rows: list[Row] = []
    if 0 < len(loopback) < len(tasks):
        rows.append(
            Row("addresses", BAD, f"{', '.join(loopback)}: an address that means another machine on each",
                "Give each task the address by which the other machines reach it.")
        )  # fmt: skip

    async def look() -> list[list[Row]]:
        # An evaluator that the cluster does not list has no port.
        looks = [_own(own, tasks[own], tasks.values(), timeout)] if own in tasks else []
        looks += [_peer(name, address, timeout) for name, address in tasks.items() if name != own]
        return list(await asyncio.gather(*looks))

    return [*rows, *(row for found in asyncio.run(look()) for row in found)]


async def _own(name: str, address: str, tasks: Collection[str], timeout: float) -> list[Row]:
    check = f"own port, {address}"
    host, port = split_address(address)
    try:
        (await listening_socket(address, tasks)).close()
    except OSError as error:
        answer = await answer_at(address, timeout)
        if answer.greeting is not None and answer.is_of(name):
            return [Row(check, OK, f"{name} waits there: {printable(answer.greeting['id'])}")]
        return [Row(check, BAD, *no_port(error))]
    try:
        async with asyncio.timeout(timeout):
            places = {place[0] for *_, place in await look_up_host(host, port)}
    except OSError as error:
        return [_unreachable(check, error)]
    if not any(map(_is_here, places)):
        found = f"free, but {', '.join(sorted(places))} is no address of this machine"
        fix = "Right if a gateway forwards the port; else correct the address or the index."
        return [Row(check, NONE, found, fix)]
    return [Row(check, OK, "free")]


async def _peer(name: str, address: str, timeout: float) -> list[Row]:
    check = f"{name}, {address}"
    greeting, error = await answer_at(address, timeout)
    if isinstance(error, ConnectionRefusedError):
        return [Row(check, OK, "the machine is there; nobody listens yet")]
    if error is not None:
        return [_unreachable(check, error)]
    if greeting is None:
        return [Row(check, OK, "something listens there, which is no worker that waits for its peers")]
    if greeting["task"] != name:
        found = f"{printable(greeting['task'])} waits there"
        return [Row(check, BAD, found, "Give all workers the same addresses.")]
    apart = float(greeting["time"]) - time.time()
    clock = Row(f"clock of {name}", OK, f"{apart:+.1f} s apart")
    if abs(apart) > CLOCKS:
        clock = clock._replace(status=BAD, fix="Set the clocks by NTP: logs could not be compared.")
    return [Row(check, OK, f"{name} waits there: {printable(greeting['id'])}"), clock]


def _unreachable(check: str, error: OSError) -> Row:
    if isinstance(error, socket.gaierror):
        fix = "Correct the name, or make it known to this machine (DNS, /etc/hosts)."
    else:
        fix = "Check that the machine is on, and that no firewall blocks this port."
    return Row(check, BAD, absence(error).partition(" ")[2], fix)


def _is_here(place: str) -> bool:
    """Return whether an IP address is one of this machine."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in place else socket.AF_INET) as one:
            one.bind((place, 0))
    except OSError:
        return False
    return True


def _hosts(
    hosts: Sequence[str],
    ssh: object,
    run_dir: str | os.PathLike[str] | None,
    rscript: str | None,
    timeout: float,
) -> list[Row]:
    """Compare the hosts of a cluster with each other and with this machine, all at once by ssh."""
    r = r_request([rscript, "--no-init-file"], os.environ) if rscript is not None else None
    folder = os.path.abspath(os.getcwd() if run_dir is None else Path(run_dir).expanduser())
    with contextlib.ExitStack() as stack:
        marker = None
        with contextlib.suppress(OSError):  # this user cannot write there
            marker = stack.enter_context(marker_in(folder))
        answers = ask_hosts(
            check_hosts(hosts), ssh=words_of_ssh(ssh), timeout=timeout, env=os.environ, marker=marker, r=r
        )
    return findings(answers, versions_here(r), folder, sees_folder=marker is not None)


# --- What is installed


_RANGES = {name.lower(): name for name in SUPPORTED}


def _packages() -> list[Row]:
    python = ".".join(map(str, sys.version_info[:3]))
    rows = [Row("Python", OK, f"{python}, {sys.executable}"), Row("tfdistr", OK, __version__)]
    for name, distributions in PACKAGES.items():
        version = version_of(*distributions)
        if version is None:
            rows.append(Row(name, BAD, "not installed", f"pip install {name}"))
        elif name in _RANGES and not is_supported(_RANGES[name], version):
            rows.append(Row(name, BAD, version, f"pip install '{requirement(_RANGES[name])}'"))
        else:
            rows.append(Row(name, OK, version))
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if backend != "tensorflow":
        rows.append(Row("KERAS_BACKEND", BAD, backend, "Unset it: tfdistr trains with TensorFlow."))
    if os.environ.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true"):
        rows.append(Row("TF_USE_LEGACY_KERAS", BAD, "set", "Unset it: tfdistr trains Keras 3 models."))
    return rows


def _mpi(timeout: float) -> list[Row]:
    version = version_of("mpi4py")
    if version is None:
        return [Row("MPI", NONE, "no mpi4py: TensorFlow's ring is used", "pip install mpi4py mpich")]
    said = _run([sys.executable, "-c", PRINT_LIBRARY], timeout)
    if said.failure:
        return [Row("MPI", BAD, f"mpi4py {version}: {said.failure}", "pip install mpi4py mpich")]
    library = " ".join(said.output.splitlines()[0].split()).strip("\0")
    if "MPICH" not in library:
        fix = "pip install mpich, unless the launcher of this MPI starts the workers."
        return [Row("MPI", NONE, f"mpi4py {version}, {library}: joined workers use the ring", fix)]
    return [Row("MPI", OK, f"mpi4py {version}, {library}")]


def _gpus(timeout: float) -> list[Row]:
    """Return the GPUs of this machine, and the GPUs that TensorFlow sees in a separate process."""
    there = visible_gpus({})
    said = _run([sys.executable, "-c", _TENSORFLOW], max(timeout, _IMPORT))
    if said.failure:
        fix = "Repair TensorFlow; see: python -c 'import tensorflow'"
        return [Row("import tensorflow", BAD, said.failure, fix)]
    seen = json.loads(said.output.splitlines()[-1])
    fix = "pip install 'tensorflow[and-cuda]'; check the driver." if len(seen) < of_one_process(there) else ""
    found = f"{len(there)} visible, TensorFlow sees {len(seen)}"
    return [Row("import tensorflow", OK, "works"), Row("GPUs", BAD if fix else OK, found, fix)]


def _r(rscript: str | None, timeout: float) -> list[Row]:
    program = rscript or shutil.which("Rscript")
    if program is None:
        return [Row("R", NONE, "no Rscript on PATH; needed for R only")]
    said = _run([program, "--no-init-file", "-e", VERSIONS_OF_R], timeout)
    lines = said.output.splitlines()
    if said.failure or len(lines) < 1:
        return [Row("R", BAD, said.failure or "says nothing", f"See: {program} --version")]
    version, reticulate, package = [*lines, "", ""][:3]
    rows = [Row("R", OK, f"{version}, {program}")]
    if not reticulate:
        rows.append(Row("reticulate", NONE, "not installed; needed for R only"))
    else:
        numbers = tuple(int(part) for part in reticulate.replace("-", ".").split(".")[:2])
        fix = "" if numbers >= _RETICULATE else "Install reticulate 1.41 or later: older ones lack NumPy 2."
        rows.append(Row("reticulate", BAD if fix else OK, reticulate, fix))
    if package and package != __version__:
        found = f"{package}, in Python {__version__}"
        rows.append(Row("R package tfdistr", BAD, found, "Install the same version in both."))
    elif package:
        rows.append(Row("R package tfdistr", OK, package))
    return rows


def _run(command: Sequence[str], timeout: float) -> ProgramEnd:
    """Run a program that takes no notice of the cluster of this process."""
    env = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    return run_program(command, timeout, env=env)


# --- The command


def read_config(file: str) -> str:
    """Return the TF_CONFIG in a file."""
    return read_text(
        file,
        rule="The file with TF_CONFIG must be one that can be read.",
        fix="Write what tf_config(...)[0].to_json() gives into a file.",
    )


# Variables that others read while they are loaded or started.
_READ = re.compile(
    r"(TF_|CUDA_|NVIDIA_|XLA_|KERAS_|RETICULATE_|UV_|OMP_|OPENBLAS_|MPI|OMPI_|PMI|SLURM_|VIRTUAL_ENV|R_LIBS)"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|KEY")
_PACKAGES = (
    "tensorflow", "keras", "numpy", "tensorflow-datasets", "mpi4py", "mpich", "jsonschema", "pyarrow",
    "pandas", "rpy2", "ray",
)  # fmt: skip


def relevant_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that change what TensorFlow, Python, MPI and the schedulers do; no secrets."""
    names = [name for name in variables if _READ.match(name) and not _SECRET.search(name)]
    return {name: variables[name] for name in sorted(names)}


def bug_report(timeout: float = 20.0) -> str:
    """Return the report as text."""
    checks = doctor(timeout=timeout)
    versions = {"tfdistr": __version__, "Python": f"{platform.python_version()}, {sys.executable}"}
    versions |= {name: version_of(name) or "none" for name in _PACKAGES}
    machine = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cores": str(os.cpu_count()),
    }
    sections = {
        "Versions": _columns(versions),
        "Machine": _columns(machine),
        "Environment": _columns(relevant_variables(os.environ)) or "none",
        "Checks": str(checks),
    }
    return "\n\n".join(f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections.items())


def _columns(values: Mapping[str, str]) -> str:
    width = max(map(len, values), default=0)
    return "\n".join(f"{name:{width}}  {value}" for name, value in values.items())
