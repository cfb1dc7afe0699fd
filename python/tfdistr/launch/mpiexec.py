"""Workers as the ranks of one ``mpiexec``: starting it, reading its output, and ending it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from tfdistr._utils.trusted_files import create_private
from tfdistr._utils.uninterrupted import uninterrupted
from tfdistr.errors import ClusterStartError, TfdistrError
from tfdistr.launch import rank_guard
from tfdistr.launch.hosts import not_started, unseen_run_dir
from tfdistr.launch.loopback import Loopback
from tfdistr.launch.lost import Loss, reaching
from tfdistr.launch.process import log_path, server_lost_error
from tfdistr.launch.program_output import ProgramOutput
from tfdistr.launch.warm.servers import WarmStart

_REAP = 15.0  # seconds that mpiexec has to end after the request; then it is killed
# Seconds that the guards need to end the workers of an mpiexec that is gone.
_SETTLE = 3.0
# Variables of this process from the launcher of another job: they are not for the ranks of this job.
_OF_RANKS = ("PMI_", "PMIX_", "OMPI_", "PRTE_", "MPI_LOCAL", "HYDI_")
# MPICH's process on a host would look for a launcher that is gone ten times, every 10 s.
_AT_ONCE = {"HYDRA_PROXY_RETRY_COUNT": "0"}
# MPICH sends SIGUSR1 to the other ranks when a rank ends, maybe before they handle this signal.
_NO_USR1 = ("sh", "-c", 'trap "" USR1; exec "$@"', "sh")


def find_mpiexec() -> str | None:
    """The path of MPI's launcher: the one beside this Python, else the one on PATH."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("mpiexec")


def family(version: str) -> str | None:
    """The MPI whose launcher prints ``version`` for ``--version``: "mpich", "openmpi", or None."""
    if "HYDRA" in version:
        return "mpich"
    return "openmpi" if any(name in version for name in ("Open MPI", "OpenRTE", "prte")) else None


def command_line(
    mpiexec: str,
    version: str,
    workers: int,
    hosts: Sequence[str] = (),
    *,
    ssh: Sequence[str] = (),
    env: Iterable[str] = (),
    root: bool = False,
) -> list[str]:
    """The command by which ``mpiexec`` starts the ranks; the program of the ranks follows.

    Args:
        mpiexec: The path of the launcher.
        version: The output of the launcher for ``--version``.
        workers: Number of ranks, a multiple of the number of hosts.
        hosts: The hosts, with the same number of ranks on each; this machine if there are none.
        ssh: The program that starts processes on other hosts, and its options; by default ``ssh``.
        env: The names of environment variables that ranks on other hosts must have, too.
        root: Whether the user is root, which Open MPI allows only with an option.

    Raises:
        ClusterStartError: The launcher belongs to an unknown MPI.
    """
    each = workers // max(len(hosts), 1)
    kind = family(version)
    if kind == "mpich":
        # MPICH would kill the other ranks before they report their end: the guards end them instead.
        line = [mpiexec, "-disable-auto-cleanup", "-rmk", "user", "-n", str(workers)]
        if not hosts:
            return [*line, "-launcher", "fork", "-localhost", "127.0.0.1"]
        agent = ["-launcher-exec", *ssh] if ssh else []
        return [*line, "-launcher", "ssh", *agent, "-hosts", ",".join(hosts), "-ppn", str(each)]
    if kind == "openmpi":
        where = ["--host", ",".join(f"{host}:{each}" for host in hosts or ["localhost"])]
        agent = ["--mca", "plm_rsh_agent", shlex.join(ssh)] if ssh else []
        allow = ["--allow-run-as-root"] if root else []
        send = [word for name in env for word in ("-x", name)] if hosts else []  # MPICH passes on all
        return [mpiexec, *allow, "--bind-to", "none", "--oversubscribe", *where, *agent, *send,
                "-n", str(workers)]  # fmt: skip
    raise ClusterStartError(
        "mpiexec must be that of MPICH or of Open MPI.",
        received=f"{mpiexec}, which says of itself: {(version.strip() or 'nothing').splitlines()[0]}",
        fix="pip install 'tfdistr[mpi]' for MPICH, or start the script itself with your launcher.",
    )


@lru_cache(maxsize=4)
def version_of(mpiexec: str) -> str:
    """The output of the launcher for ``--version``."""
    try:
        said = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return said.stdout + said.stderr


class JobOfRanks(Protocol):
    """What starts ranks, as a rank sees it: mpiexec, or srun.

    Attributes:
        failure: The error of the launcher, if there is one.
        signs_of_life: Whether ranks give signs of life.
    """

    failure: TfdistrError | None
    signs_of_life: bool

    def look(self) -> None: ...
    def end(self, *, kill: bool) -> None: ...
    def reap(self) -> None: ...
    def error(self) -> TfdistrError | None: ...


class Rank:
    """A worker that mpiexec has started, on this machine or another, with the interface of `Worker`.

    Args:
        job: The mpiexec, or the srun.
        index: The index of the worker, which is its rank.
        host: The machine on which the worker runs.
        run_dir: The directory of the run.
    """

    def __init__(self, job: JobOfRanks, index: int, host: str, run_dir: Path) -> None:
        self.index = index
        self.host = host
        self.log = log_path(run_dir, index)
        self.pid = 0  # until it has started
        self.exit_code: int | None = None
        self.is_stopped = False
        self.failed: str | None = None
        self._job = job
        self._warning = run_dir / rank_guard.WARNING
        self._heard: float | None = None
        self._started, self._ended = time.monotonic(), 0.0

    @property
    def seconds(self) -> float:
        """Seconds from its start to its end, or until now."""
        return (time.monotonic() if self.exit_code is None else self._ended) - self._started

    @property
    def silent_for(self) -> float:
        """Seconds since its last sign of life; 0 if it gives none, or has ended."""
        return 0.0 if self._heard is None or self.exit_code is not None else time.monotonic() - self._heard

    def poll(self) -> int | None:
        """Check whether it has ended."""
        self._job.look()
        return self.exit_code

    def take(self, message: Mapping[str, Any]) -> None:
        """Process a message of its guard."""
        if self._job.signs_of_life:
            self._heard = time.monotonic()
        self.pid = message.get("pid", self.pid)
        self.is_stopped = message.get("halted", self.is_stopped)
        if "failed" in message:
            self._job.failure = self._job.failure or _not_started(self, message)
            self.end(1)
        if message.get("server_lost"):
            self._job.failure = self._job.failure or server_lost_error(self)
            self.end(1)
        if "exit_code" in message:
            self.end(message["exit_code"])

    def end(self, exit_code: int) -> None:
        """Note that it has ended."""
        if self.exit_code is None:
            self.exit_code, self._ended = exit_code, time.monotonic()

    def signal_group(self, number: signal.Signals) -> None:
        """End all ranks: mpiexec passes the request on."""
        self._job.end(kill=number == signal.SIGKILL)

    def warn(self) -> None:
        """Send SIGTERM, as a scheduler does some time before it ends a process."""
        if self._job.signs_of_life:  # its guard looks for the file at each sign of life
            self._warning.touch()
        elif self.pid and self.exit_code is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(self.pid, signal.SIGTERM)

    def reap(self) -> None:
        """Wait until mpiexec and its processes have ended."""
        self._job.reap()

    def launch_error(self) -> TfdistrError | None:
        """The error if it could not be started, or if mpiexec ended before it did."""
        return self._job.error()


class Mpiexec:
    """One mpiexec and its ranks.

    Args:
        arguments: The command of a worker; the run directory and the index are added.
        run_dir: The directory of the run.
        environments: Environment variables for each worker, added to the variables of this process.
        hosts: The machines, with the same number of workers on each; this machine if there are none.
        ssh: The program that starts processes on other hosts, and its options.
        loopback: The protection from other machines, if there is one.
        warm: How the fork server of its host starts each worker; None for a cold start.

    Raises:
        ClusterStartError: There is no mpiexec, or it belongs to an unknown MPI.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        run_dir: str | os.PathLike[str],
        environments: Sequence[Mapping[str, str]],
        *,
        hosts: Sequence[str] = (),
        ssh: Sequence[str] = (),
        loopback: Loopback | None = None,
        warm: Sequence[WarmStart | None] = (),
    ) -> None:
        mpiexec = find_mpiexec()
        if mpiexec is None:
            raise no_launcher()
        workers = len(environments)
        folder = Path(run_dir)
        self._reached = log_path(folder, 0).with_name("reached.log")
        self._reached.unlink(missing_ok=True)
        agent = _one_program(reaching(self._reached, hosts, ssh or ["ssh"]), folder) if hosts else []
        # The values may be secret: neither a file nor a command line, which others see, has them.
        common = dict(set.intersection(*(set(env.items()) for env in environments)))
        line = command_line(
            mpiexec, version_of(mpiexec), workers, hosts, ssh=agent, env=common, root=os.getuid() == 0
        )
        self.failure: TfdistrError | None = None
        #: Whether ranks give signs of life: mpiexec does not report the loss of a machine.
        self.signs_of_life = bool(hosts)
        each = workers // max(len(hosts), 1)
        names = [hosts[index // each] if hosts else socket.gethostname() for index in range(workers)]
        self.ranks = [Rank(self, index, name, folder) for index, name in enumerate(names)]
        self._log = log_path(folder, 0).with_name("mpiexec.log")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        (folder / rank_guard.WARNING).unlink(missing_ok=True)
        # New files: the mpiexec of a session that was killed may still write into those of its run.
        for log in (self._log, *(rank.log for rank in self.ranks)):
            log.unlink(missing_ok=True)
            log.touch()
        own = [{name: env[name] for name in env if name not in common} for env in environments]
        forks = [start and vars(start) for start in warm] or [None] * workers
        spec = {"command": list(arguments), "environments": own, "signs_of_life": self.signs_of_life,
                "warm": forks}  # fmt: skip
        with create_private(folder / rank_guard.SPEC, "w") as file:
            json.dump(spec, file)
        python = [sys.executable, "-I", "-S", rank_guard.__file__]
        program = [*python, "run", str(os.getpid()), *line, *_NO_USR1, *python, "rank", os.fspath(folder)]
        given = {k: v for k, v in os.environ.items() if not k.startswith(_OF_RANKS)}
        inherited = _AT_ONCE | given | common
        keep = loopback or Loopback("none")
        self._output = ProgramOutput(self._log)
        self._lines: list[str] = []
        self._asked = False
        self._settled = 0.0
        self._loss: Loss | None = None
        process: subprocess.Popen[bytes] | None = None
        try:
            with uninterrupted(), os.fdopen(self._output.writer, "wb") as output:
                self._process = process = subprocess.Popen(
                    keep.command(program), env=keep.environment(inherited), stdin=subprocess.DEVNULL,
                    stdout=output, stderr=subprocess.STDOUT, start_new_session=True, pass_fds=keep.files,
                )  # fmt: skip
        except BaseException:
            if process is not None:
                self.end(kill=False)
                self.reap()
            raise

    def look(self) -> None:
        """Read the output since the last call."""
        ended = self._process.poll()
        for line in self._output.lines(final=ended is not None):
            if line.startswith(rank_guard.MARK):
                with contextlib.suppress(ValueError):
                    message = json.loads(line.removeprefix(rank_guard.MARK))
                    self.ranks[message["rank"]].take(message)
            elif line.strip():
                self._lines.append(line)
        lost = [rank for rank in self.ranks if rank.exit_code is None] if ended is not None else []
        if lost and not self._asked:
            self._settled = time.monotonic() + _SETTLE
            self._loss = Loss(ended or 0, self._lines, len(self.ranks), lost)
        for rank in lost:
            rank.end(1)  # the end of mpiexec is not the end of the worker

    def error(self) -> TfdistrError | None:
        """The error if a worker could not be started, or if mpiexec ended before its ranks did."""
        if self.failure is None and self._loss is not None:
            self.failure = self._loss.error(self._reached)
        return self.failure

    def end(self, *, kill: bool) -> None:
        """Ask the ranks to end; ``kill`` ends at once the ranks that were asked before."""
        # mpiexec cannot pass on SIGKILL: for the guards of the ranks, a second signal means SIGKILL.
        if kill or not self._asked:
            self._process.send_signal(signal.SIGINT)
        self._asked = True

    def reap(self) -> None:
        """Wait for the end of mpiexec."""
        try:
            self._process.wait(_REAP)
        except subprocess.TimeoutExpired:
            self._process.kill()  # then the kernel kills mpiexec
            self._process.wait()
        self.look()
        time.sleep(max(0.0, self._settled - time.monotonic()))


def no_launcher() -> ClusterStartError:
    """The error if there is no mpiexec."""
    return ClusterStartError(
        "Workers that communicate by MPI are started by its launcher, mpiexec.",
        received=f"no mpiexec beside {sys.executable}, and none on PATH",
        fix="pip install 'tfdistr[mpi]', or put the mpiexec of your MPI on PATH.",
    )


def _one_program(command: Sequence[str], folder: Path) -> list[str]:
    """A program in ``folder`` that runs ``command``: MPICH's launcher takes a program without options."""
    script = folder / "ssh"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
    script.chmod(0o700)
    return [str(script)]


def _not_started(rank: Rank, message: Mapping[str, Any]) -> ClusterStartError:
    host = message["host"]
    if message["missing"]:
        return unseen_run_dir(message["missing"], host, rank.index)
    return not_started(rank.index, host, message["failed"])
