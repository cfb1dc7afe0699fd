"""Runs jobs of all kinds for minutes or hours, disturbs each by a random fault, and compares every bit.

    python tests/chaos/soak.py --minutes 30 --seed 1
    python tests/chaos/soak.py --minutes 5 --kinds 'mpi ring' --faults 'launcher'

Each job is a process of its own. A job that fails because of its fault is resumed. It must end with the
weights, the optimizer's variables and the history of the undisturbed job of its kind. Ctrl-C ends the last
job, and prints the table of all jobs so far. Exit status 0 if no job differs, hangs, fails or leaves
something behind.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tfdistr

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[1] / "python" / "helpers"))
sys.path.append(str(Path(__file__).resolve().parents[2] / "tools" / "lab"))
import hosts
import leftovers

from tfdistr.checkpoint.folder import CheckpointFolder

STEPS, EPOCHS, EVERY = 60, 3, 10
HEARTBEAT = 10.0  # seconds until a worker that is paused counts as failed
ATTEMPTS = 4
DISK = 24  # MiB of the file system that becomes full
R_JOB = Path(__file__).with_name("soak.R")
RUN, RESULT, TEMPORARY = "run", "result.json", "tmp"

RING, MPI = (tfdistr.multi_worker_mirrored(communication=way) for way in ("ring", "mpi"))
#: The kinds of jobs, and what is special about each. The hosts of "ssh" are network namespaces.
KINDS: dict[str, dict[str, Any]] = {
    "ring": {"strategy": RING, "warm": False},
    # Each attempt has another number of workers.
    "elastic": {"strategy": RING, "virtual_workers": 3, "failures": None},
    "mpi": {"strategy": MPI, "warm": False},
    "warm ring": {"strategy": RING},
    "warm mpi": {"strategy": MPI},
    "ssh": {"strategy": RING, "hosts": "ab"},
    "servers": {"strategy": tfdistr.parameter_server(update="sync"), "ps": 1},
    "mirrored": {"strategy": tfdistr.mirrored(devices=["cpu:0"])},
    # Several devices of one process cannot have checkpoints.
    "devices": {"strategy": tfdistr.mirrored(devices=["cpu:0", "cpu:1"]), "checkpoint_every": None},
    "store": {"strategy": RING, "store": True},
    "R": {"r": True},
}
#: The kinds whose workers are forks of a fork server.
WARM = ("warm ring", "warm mpi", "servers", "store")
#: The faults, and the kinds of jobs that have what they need.
FAULTS: dict[str, Callable[[str], bool]] = {
    "none": lambda kind: True,
    "kill a worker": lambda kind: kind not in ("mirrored", "devices"),
    "kill a guard": lambda kind: "mpi" in kind,
    "kill the launcher": lambda kind: kind != "devices",
    "kill the fork server": lambda kind: kind in WARM,
    "kill launcher and fork server": lambda kind: kind in WARM,
    "kill at the start": lambda kind: kind not in ("mirrored", "devices"),
    "cut a connection": lambda kind: "ring" in kind or "mpi" in kind,
    "kill during a save": lambda kind: "ring" in kind or "mpi" in kind,
    "pause": lambda kind: True,
    "stop for ever": lambda kind: "ring" in kind or "mpi" in kind,
    "delete the folder of a worker": lambda kind: "ring" in kind or "mpi" in kind,
    "cut a link": lambda kind: kind == "ssh",
    "fill the disk": lambda kind: kind not in ("ssh", "store", "devices"),
}


# --- One job


def model() -> Any:
    """The model of all jobs but those of R."""
    import keras

    made = keras.Sequential([
        keras.layers.Dense(512, activation="relu"), keras.layers.BatchNormalization(),
        keras.layers.Dropout(0.3), keras.layers.Dense(512, activation="relu"),
        keras.layers.Dense(2, activation="softmax"),
    ])  # fmt: skip
    made.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return made


def train(kind: str, folder: Path, ssh: str, names: list[str]) -> None:
    """Run the job of a kind, or resume it. The result is a file of ``folder``."""
    import keras
    import numpy as np

    given = {"resume": True, "checkpoint_every": EVERY, "failures": tfdistr.on_failure(max_restarts=2)}
    given |= KINDS[kind]
    warm, ps, on_hosts = given.pop("warm", True), given.pop("ps", 0), given.pop("hosts", None)
    run_dir: Path | str = folder / RUN
    if given.pop("store", False):
        run_dir = f"file://{folder / 'store'}"
    if kind in ("mirrored", "devices"):
        import tensorflow as tf

        (cpu,) = tf.config.list_physical_devices("CPU")
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
        given |= {"cluster": None, "failures": None, "resume": kind == "mirrored"}
    elif on_hosts:
        given["cluster"] = tfdistr.ssh_cluster(names, ssh=ssh, heartbeat_timeout=HEARTBEAT)
    else:
        workers = 2
        if kind == "elastic":
            with (folder / "attempts").open("a+") as attempts:
                attempts.write(".")
                workers = (3, 1, 2)[(attempts.tell() - 1) % 3]
        given["cluster"] = tfdistr.local_cluster(workers, ps=ps, warm=warm, heartbeat_timeout=HEARTBEAT)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(16 * STEPS, 6)).astype("float32")
    y = (x[:, 0] * x[:, 1] > 0).astype("int64")
    fit = tfdistr.distributed_fit(
        model, x, y, validation_data=(x[:100], y[:100]), batch_size=16, epochs=EPOCHS, seed=1,
        callbacks=[
            keras.callbacks.EarlyStopping(patience=EPOCHS), keras.callbacks.ReduceLROnPlateau(patience=1),
        ],
        run_dir=run_dir, verbose=0, **given,
    )  # fmt: skip
    write_result(fit, folder / RESULT)


def write_result(fit: Any, file: Path | str) -> None:
    """Write what two results have in common only if all of their bits are the same."""
    state = fit._trained.state()
    values = hashlib.sha256(b"".join(value.tobytes() for value in (*state.weights, *state.optimizer.values)))
    history = {name: [float(value).hex() for value in values] for name, values in fit.history.items()}
    Path(file).write_text(json.dumps({"values": values.hexdigest(), "history": history}))


class Job:
    """A job of a kind, in a process of its own.

    Args:
        kind: Its kind.
        folder: What it writes is here, but for shared memory.
        net: The hosts of ssh.
    """

    def __init__(self, kind: str, folder: Path, net: hosts.Hosts | None) -> None:
        self.kind, self.folder, self.net = kind, folder, net
        (folder / TEMPORARY).mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """Start it, or resume it."""
        env = os.environ | {"TMPDIR": str(self.folder / TEMPORARY), "TF_CPP_MIN_LOG_LEVEL": "2"}
        if self.kind == "R":
            command = ["Rscript", str(R_JOB), str(self.folder), *map(str, (STEPS, EPOCHS, EVERY, HEARTBEAT))]
        else:
            ssh, names = (self.net.ssh, ",".join(map(self.net.address, "ab"))) if self.net else ("", "")
            command = [sys.executable, __file__, "--job", self.kind, str(self.folder), ssh, names]
        with (self.folder / "output.txt").open("ab") as output:
            self.process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder,
                start_new_session=True,
            )  # fmt: skip

    def wait(self, seconds: float) -> bool:
        """Wait for its end; whether it has ended well."""
        return self.process.wait(seconds) == 0

    def end(self) -> None:
        """Kill what is left of it: the workers end with the launcher."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def workers(self) -> list[int]:
        """The processes of the workers that were started last."""
        pids = []
        for file in sorted(self.folder.rglob("workers/*/events.jsonl")):
            with contextlib.suppress(OSError, ValueError):
                events = map(json.loads, file.read_text().splitlines())
                pids += [event["pid"] for event in events if event["event"] == "started"][-1:]
        return [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    def fork_servers(self) -> list[int]:
        """The fork servers of the job, which is the only one now."""
        return [pid for pid, line in leftovers._processes() if "tfdistr.fork_server.server" in line]

    def connections(self) -> list[str]:
        """The filters of ``ss`` for the connections of its workers with each other."""
        listed = subprocess.run(["ss", "-tnpH", "state", "established"], capture_output=True, text=True)
        pids = {f"pid={pid}," for pid in self.workers()}
        rows = [line.split() for line in listed.stdout.splitlines() if any(pid in line for pid in pids)]
        return [f"src {own} and dst {peer}" for _, _, own, peer, *_ in rows]

    def guards(self) -> list[int]:
        """The guards of ranks."""
        return [pid for pid, line in leftovers._processes() if "guard.py rank" in line]

    def checkpoints(self) -> set[object]:
        """The positions of its checkpoints."""
        folders = self.folder.rglob("checkpoints")
        return {position for path in folders for position in CheckpointFolder(path).positions()}

    def result(self) -> Any:
        return json.loads((self.folder / RESULT).read_text())


# --- One fault


def disturb(job: Job, fault: str, chosen: random.Random, until: float) -> str | None:
    """Do it between two checkpoints. Return what was done; None if the job has ended before."""
    if fault == "kill at the start":
        time.sleep(chosen.uniform(0.3, 6.0))  # from the import of TensorFlow to the first steps
        return _do(job, fault, chosen) if job.process.poll() is None else None
    seen, number = set[object](), chosen.randint(1, 6)
    if job.kind == "devices":
        number = 0
        time.sleep(chosen.uniform(2, 10))
    while len(seen) < number:
        if job.process.poll() is not None or time.monotonic() > until:
            return None
        seen |= job.checkpoints()
        time.sleep(0.01)
    time.sleep(chosen.random() * 0.2)
    return None if job.process.poll() is not None else _do(job, fault, chosen)


def _do(job: Job, fault: str, chosen: random.Random) -> str | None:
    if fault == "kill the launcher":
        job.process.kill()
        return "launcher killed"
    if fault == "kill launcher and fork server":
        for pid in chosen.sample([job.process.pid, *job.fork_servers()], 2):
            os.kill(pid, signal.SIGKILL)
        return "launcher and fork server killed"
    if fault == "cut a connection":
        connections = job.connections()
        if connections:
            subprocess.run(["ss", "-K", *chosen.choice(connections).split()], capture_output=True)
        return "connection cut" if connections else None
    if fault == "fill the disk":
        return _fill(job)
    if fault == "delete the folder of a worker":
        folders = [file.parent for file in job.folder.rglob("workers/*/events.jsonl")]
        if folders:
            shutil.rmtree(chosen.choice(folders), ignore_errors=True)
        return "the folder of a worker deleted" if folders else None
    if fault == "cut a link":
        assert job.net is not None
        name, seconds = chosen.choice("ab"), chosen.choice((2.0, 20.0))
        job.net.cut(name)
        try:
            time.sleep(seconds)
        finally:
            job.net.mend(name)
        return f"host {name} cut off for {seconds:.0f} s"
    by_fault = {"kill a guard": job.guards, "kill the fork server": job.fork_servers}
    pids = by_fault.get(fault, job.workers)()
    if fault == "kill at the start":
        pids += [job.process.pid, *job.fork_servers()]
    if fault == "kill during a save":
        pids = pids[:1]  # the chief, who writes
        while not list(job.folder.rglob("*.partial")):
            if job.process.poll() is not None:
                return None
    if fault == "pause" and not pids:
        pids = [job.process.pid]  # which trains itself
    if not pids:
        return None
    pid, seconds = chosen.choice(pids), chosen.uniform(1, 5)
    with contextlib.suppress(ProcessLookupError):
        if fault == "stop for ever":
            os.kill(pid, signal.SIGSTOP)
            return f"process {pid} stopped (SIGSTOP)"
        if fault != "pause":
            os.kill(pid, signal.SIGKILL)
            return f"process {pid} killed{' during a save' if fault.endswith('a save') else ''}"
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)
        return f"process {pid} paused for {seconds:.1f} s"
    return None


def _fill(job: Job) -> str:
    """Fill the file system of the job until the job has ended, or another checkpoint was due long ago."""
    ballast, block = job.folder / "ballast", b"\0" * (1 << 16)
    until = time.monotonic() + 10
    try:
        while job.process.poll() is None and time.monotonic() < until:
            # Unbuffered: it is full when a write fails. What the job removes is filled as well.
            with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
                while file.write(block) == len(block):
                    pass
            time.sleep(0.05)
    finally:
        ballast.unlink(missing_ok=True)
    return "disk filled and freed"


@contextlib.contextmanager
def folder_of(fault: str, root: Path) -> Iterator[Path]:
    """A folder for one job: for a full disk, a small file system of its own."""
    folder = Path(tempfile.mkdtemp(dir=root))
    full = fault == "fill the disk"
    try:
        if full:
            options = ["-o", f"size={DISK}m,mode=700"]
            subprocess.run(["mount", "-t", "tmpfs", *options, "soak", str(folder)], check=True)
        yield folder
    finally:
        if full:
            subprocess.run(["umount", "--lazy", str(folder)], check=False)
        shutil.rmtree(folder, ignore_errors=True)


# --- All of them


class Soak:
    """The jobs, and what came of them."""

    def __init__(self, chosen: random.Random, root: Path, net: hosts.Hosts | None, limit: float) -> None:
        self._chosen, self._root, self._net, self._limit = chosen, root, net, limit
        self._expected: dict[str, Any] = {}
        self.counts: dict[str, Counter[str]] = {}
        self.problems: list[str] = []

    def run(self, kind: str, fault: str) -> None:
        """Run a job of a kind with a fault."""
        before, number = leftovers.Present(), sum(count["jobs"] for count in self.counts.values())
        if kind not in self._expected:
            fault = "none"  # the first one says what the others must give
        began, count = time.monotonic(), self.counts.setdefault(kind, Counter())
        with folder_of(fault, self._root) as folder:
            job = Job(kind, folder, self._net)
            done, outcome = self._attempts(job, fault)
            count["jobs"] += 1
            count["faults"] += done is not None
            count["recovered"] += done is not None and outcome == "ended"
            if outcome == "ended" and job.result() != self._expected.setdefault(kind, job.result()):
                outcome = "wrong bits"
            if outcome != "ended":
                count[outcome] += 1
                output = (folder / "output.txt").read_text(errors="replace")[-4000:]
                self._problem(f"job {number}, {kind}, {done or 'undisturbed'}: {outcome}\n{output}")
            if kind == "ssh" and self._net and (there := self._net.processes()):
                self._problem(f"job {number} has left on the hosts: {there}")
        for line in leftovers.left_since(before):
            self._problem(f"job {number}, {kind}, {fault}, has left {line}")
        seconds = time.monotonic() - began
        print(f"{number:4} {kind:10} {done or 'undisturbed'}: {outcome}, {seconds:.0f} s", flush=True)

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        print(text, flush=True)

    def _attempts(self, job: Job, fault: str) -> tuple[str | None, str]:
        """Run a job, and resume it until it ends. Return what was done, and "ended", "hangs" or "failed"."""
        done = None
        for attempt in range(ATTEMPTS):
            until = time.monotonic() + self._limit
            job.start()
            try:
                if attempt == 0 and fault != "none":
                    done = disturb(job, fault, self._chosen, until)
                if job.wait(max(1.0, until - time.monotonic())):
                    return done, "ended"
            except subprocess.TimeoutExpired:
                return done, "hangs"
            finally:
                job.end()
            if done is None:
                break
        return done, "failed"

    def table(self) -> list[str]:
        """What came of the jobs, in Markdown."""
        columns = ("jobs", "faults", "recovered", "wrong bits", "hangs", "failed")
        lines = ["| kind | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
        for kind, count in self.counts.items():
            lines.append(f"| {kind} | " + " | ".join(str(count[column]) for column in columns) + " |")
        return lines


class Machine:
    """What this process and the machine use now."""

    def __init__(self) -> None:
        present = leftovers.Present()
        memory = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free, whole = (int(memory[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
        own = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        self.values = {
            "processes of the soak": len(present.processes),
            "open descriptors of the soak": len(list(Path("/proc/self/fd").iterdir())),
            "files in the folder of temporary files": len(present.files),
            "files in /tmp": len(list(Path("/tmp").iterdir())),
            "files in shared memory": len(present.shared),
            "memory of the soak, MiB": int(own["VmRSS"].split()[0]) >> 10,
            "used memory, MiB": (whole - free) >> 10,
        }

    def table(self, before: Machine) -> list[str]:
        """The values before and now, in Markdown."""
        rows = [f"| {name} | {before.values[name]} | {now} |" for name, now in self.values.items()]
        return ["| machine | before | after |", "|---|---|---|", *rows]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run jobs of all kinds, each with a random fault.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", help="only kinds of jobs with one of these words")
    parser.add_argument("--faults", default="", help="only faults with one of these words, and none")
    parser.add_argument("--limit", type=float, default=300, help="seconds that an attempt of a job has")
    parser.add_argument("--job", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        kind, folder, ssh, names = given.job
        train(kind, Path(folder), ssh, names.split(","))
        return 0
    kinds = [kind for kind in KINDS if _has(kind, given.kinds)]
    faults = [fault for fault in FAULTS if fault == "none" or _has(fault, given.faults)]
    if os.getuid() != 0:
        print("Without root, no disk becomes full.")
        faults.remove("fill the disk")
    if os.getuid() != 0 or shutil.which("ss") is None:
        print("Without root and ss, no connection is cut.")
        faults.remove("cut a connection")
    if reason := hosts.missing():
        print(f"Without hosts, no job runs by ssh: {reason}")
        kinds.remove("ssh")
    if shutil.which("Rscript") is None:
        print("Without R, no job runs from R.")
        kinds.remove("R")
    return soak(kinds, faults, given.minutes, given.seed, given.limit)


def _has(name: str, words: str) -> bool:
    return not words or any(word in name.split() for word in words.split())


def soak(kinds: list[str], faults: list[str], minutes: float, seed: int, limit: float) -> int:
    """Run jobs for so many minutes, print the tables, and return the exit status."""
    leftovers.own_everything()
    leftovers._OF_SESSION, leftovers._GRACE = (), 30.0  # fork servers end with their job here
    root = Path(tempfile.mkdtemp(prefix="soak-"))
    chosen, until = random.Random(seed), time.monotonic() + 60 * minutes
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, root, ignore_errors=True)
        net = None
        if "ssh" in kinds:
            (root / "hosts").mkdir()
            net = stack.enter_context(hosts.hosts("ab", root / "hosts"))
        soaked, before, present = Soak(chosen, root, net, limit), Machine(), leftovers.Present()
        print(f"{minutes:g} minutes, seed {seed}\n", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            order: list[str] = []
            while time.monotonic() < until:
                order = order or chosen.sample(kinds, len(kinds))
                kind = order.pop()
                soaked.run(kind, chosen.choice([fault for fault in faults if FAULTS[fault](kind)]))
        soaked.problems += leftovers.left_since(present)
        print("", *soaked.table(), "", *Machine().table(before), sep="\n", flush=True)
    briefly = [text.partition("\n")[0] for text in soaked.problems]
    print("", f"{len(briefly)} problems", *briefly, sep="\n")
    return 1 if soaked.problems else 0


if __name__ == "__main__":
    sys.exit(main())
