"""A Slurm on this machine: a controller and three nodes, without systemd, in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import netns

from tfdistr.clusters.local.local_cluster import BY_MEMORY
from tfdistr.network.ports import free_ports
from tfdistr.utils.processes import end_with_parent, process_state

_PROGRAMS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "scontrol", "squeue", "scancel")
_WITH_SBIN = f"{os.environ['PATH']}:/usr/sbin:/sbin"
NODES = ("n9", "n10", "n11")
"""The names of the nodes, whose order is not the order of the alphabet."""
CPUS = 4
"""The processors that each node says it has."""
_START = 60.0  # seconds


def missing() -> str | None:
    """Why there can be no Slurm here; None if there can."""
    if os.name != "posix" or os.getuid() != 0:
        return "its nodes need root"
    absent = [program for program in _PROGRAMS if shutil.which(program, path=_WITH_SBIN) is None]
    return f"there is no {', '.join(absent)} (tools/setup-slurm.sh installs them)" if absent else None


class Lab:
    """The controller and the nodes.

    Attributes:
        env: The environment variables by which programs find this Slurm.
        mounts: Whether each node has a folder of its own for PMIx.
    """

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: the path of a socket has a limit
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        # A container may not allow it.
        self.mounts = subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode == 0
        # Ranks of MPI talk by memory: interfaces of the network come and go with other tests.
        self.env = {"SLURM_CONF": str(self._folder / "slurm.conf"), **BY_MEMORY}

    def start(self) -> None:
        """Start everything, and wait until all nodes are idle."""
        key = self._folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        for name in ("state", "log", "spool", "pmix"):
            (self._folder / name).mkdir(mode=0o755)
        (self._folder / "slurm.conf").write_text(self._settings())
        (self._folder / "mpi.conf").write_text(f"PMIxCliTmpDirBase={self._folder}/pmix\n")
        socket_of_munge = self._folder / "munge"
        self._daemon(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={socket_of_munge}",
            f"--seed-file={self._folder}/seed", f"--pid-file={self._folder}/munged.pid",
            f"--log-file={self._folder}/log/munged.log",
        )  # fmt: skip
        _wait(socket_of_munge.exists, "munged made no socket")
        self._daemon("slurmctld", "-D")
        for node in NODES:
            self.start_node(node)
        idle = dict.fromkeys(NODES, "idle")
        _wait(lambda: self.states() == idle, f"nodes are not idle: {self.states()}")

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        (self._folder / "spool" / node / "pmix").mkdir(parents=True, exist_ok=True)
        slurmd = [shutil.which("slurmd", path=_WITH_SBIN) or "slurmd", "-D", "-N", node]
        if self.mounts:
            # Two nodes of one machine would make the same folder for PMIx: each sees its own in its place.
            own, seen = self._folder / "spool" / node / "pmix", self._folder / "pmix"
            mount = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
            slurmd = ["unshare", "--mount", "sh", "-c", mount, "sh", str(own), str(seen), *slurmd]
        self._daemon(*slurmd, name=node)

    def kill_node(self, node: str) -> None:
        """Kill the daemon of a node, and all that runs there, as if its machine were switched off."""
        daemon = self._daemons.pop(node)
        daemon.kill()
        daemon.wait()
        netns.kill(self._pids_of(node))

    def states(self) -> dict[str, str]:
        """The state of each node."""
        said = self.run("sinfo", "-h", "-N", "-o", "%N %t", check=False)
        return dict(line.split()[:2] for line in said.splitlines() if len(line.split()) > 1)

    def jobs(self) -> list[str]:
        """The jobs that wait or run: number, name and state."""
        return self.run("squeue", "-h", "-o", "%i %j %T").splitlines()

    def run(self, *command: str, check: bool = True, env: Mapping[str, str] | None = None) -> str:
        """Run a program of Slurm, and return its output."""
        ended = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **self.env, **(env or {})},
        )
        if check and ended.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {ended.stderr}")
        return ended.stdout

    def stop(self) -> None:
        """Cancel all jobs, and end everything."""
        with contextlib.suppress(Exception):
            self.run("scancel", "--user", str(os.getuid()), check=False)
            _wait(lambda: not self.jobs(), "jobs are left", 15.0)
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        netns.kill(pid for node in NODES for pid in self._pids_of(node))
        shutil.rmtree(self._folder, ignore_errors=True)

    def _daemon(self, program: str, *arguments: str, name: str = "") -> None:
        path = shutil.which(program, path=_WITH_SBIN) or program
        with (self._folder / "log" / f"{name or program}.out").open("ab") as output:
            self._daemons[name or program] = subprocess.Popen(
                [path, *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, **self.env}, start_new_session=True,
                preexec_fn=lambda: end_with_parent(signal.SIGKILL),  # noqa: PLW1509 - no threads here
            )  # fmt: skip

    def _pids_of(self, node: str) -> list[int]:
        """The tasks that run on a node, and what has started them there."""
        found: dict[int, int] = {}  # by process: its parent
        stepds: set[int] = set()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                pid = int(process.name)
                environ = (process / "environ").read_bytes().split(b"\0")
                if f"SLURM_CONF={self.env['SLURM_CONF']}".encode() not in environ:
                    continue
                if (process / "cmdline").read_bytes().startswith(b"slurmstepd"):
                    stepds.add(pid)
                elif f"SLURMD_NODENAME={node}".encode() in environ and process_state(pid) != "Z":
                    stat = (process / "stat").read_text().rpartition(")")[2].split()
                    found[pid] = int(stat[1])
        return [*found, *(stepds & set(found.values()))]

    def _settings(self) -> str:
        controller, *nodes = free_ports(1 + len(NODES))
        host, folder = socket.gethostname(), self._folder
        lines = [
            "ClusterName=lab", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={controller}",
            "SlurmUser=root",
            # The controller would listen at the address of its own name.
            "CommunicationParameters=NoCtldInAddrAny",
            # A job that is queued again waits as long as its credential is valid.
            f"AuthInfo=socket={folder}/munge,cred_expire=5",
            f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/spool/%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid", f"SlurmdPidFile={folder}/slurmd-%n.pid",
            f"SlurmctldLogFile={folder}/log/slurmctld.log", f"SlurmdLogFile={folder}/log/slurmd-%n.log",
            "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "MpiDefault=none",
            "SelectType=select/cons_tres", "SelectTypeParameters=CR_Core", "SchedulerType=sched/builtin",
            "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0",
            # By the number of a job its tasks find their ports: labs of several processes have other numbers.
            f"FirstJobId={os.getpid() * 100}",
            "SlurmdParameters=config_overrides", "ReturnToService=2", "SlurmdTimeout=10", "KillWait=5",
            "MailProg=/bin/true",
            f"NodeName=DEFAULT CPUs={CPUS} CoresPerSocket={CPUS} RealMemory=4000 State=UNKNOWN",
            *(f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}"
              for name, port in zip(NODES, nodes, strict=True)),
            f"PartitionName=main Nodes={','.join(NODES)} Default=YES MaxTime=INFINITE State=UP",
        ]  # fmt: skip
        return "\n".join(lines) + "\n"


@contextlib.contextmanager
def lab() -> Iterator[Lab]:
    """A Slurm as long as the block runs."""
    made = Lab()
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _wait(condition: object, else_say: str, seconds: float = _START) -> None:
    assert callable(condition)
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(else_say)
        time.sleep(0.1)
