"""Jobs with a fault: started, watched and ended. What each process said, and how long after the fault."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tfdistr
from tfdistr.network.ports import free_ports

sys.path.append(str(Path(__file__).parents[1] / "python" / "helpers"))
import warm
from launched import wait_for

PROGRAM = Path(__file__).parent / "faulty.py"
MPIEXEC = Path(sys.executable).with_name("mpiexec")


@dataclass
class Said:
    """What came of one process.

    Attributes:
        text: The error that it raised, or "trained"; None if it was ended, or has not said anything.
        seconds: When that was, after the fault.
        found: All that it wrote.
    """

    text: str | None
    seconds: float
    found: dict[str, Any] = field(default_factory=dict)


class Job:
    """The processes of a job, each of which runs faulty.py."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[warm.Process] = []
        self.results: list[Path] = []
        self.began = time.time()

    def start(
        self,
        given: dict[str, Any],
        env: dict[str, str],
        launch: tuple[str, ...] = (),
        warm_ranks: bool = False,
    ) -> None:
        """Start faulty.py: by itself, or by the command ``launch``, as cold or warm ranks."""
        index = len(self.processes)
        result = self.folder / f"result-{index}.json"
        env = warm.ENVIRONMENT | os.environ | {"TF_CONFIG": ""} | env
        command = [sys.executable, str(PROGRAM), json.dumps(given), str(result)]
        if warm_ranks:
            command = warm.rank(command, env)
        with (self.folder / f"output-{index}.txt").open("wb") as output:
            process = warm.start([*launch, *command], env, output=output)
        self.processes.append(process)
        self.results.append(result)

    def started(self, fault: str | None) -> dict[str, Any]:
        return {"fault": fault, "ready": str(self.folder / "ready")}

    def wait_until_it_trains(self, seconds: float = 120) -> None:
        ready = self.folder / "ready"
        assert wait_for(ready.exists, seconds), self.output()
        self.began = time.time()

    def wait(self, seconds: float, *, without: tuple[int, ...] = ()) -> list[Said]:
        """Wait for what the processes say, all but those of ``without``."""
        pairs = list(zip(self.results, self.processes, strict=True))
        expected = [pair for index, pair in enumerate(pairs) if index not in without]

        def all_said() -> bool:
            return all(path.exists() or process.poll() is not None for path, process in expected)

        assert wait_for(all_said, seconds), f"not all said something within {seconds} s\n{self.output()}"
        return [self._said(path) for path in self.results]

    def _said(self, path: Path) -> Said:
        if not path.exists():
            return Said(None, time.time() - self.began)
        found = json.loads(path.read_text())
        return Said(found["said"], found["time"] - self.began, found)

    def output(self, index: int | None = None) -> str:
        indices = range(len(self.processes)) if index is None else [index]
        outputs = [(self.folder / f"output-{i}.txt").read_text(errors="replace") for i in indices]
        return "\n".join(output[-6000:] for output in outputs)

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextlib.contextmanager
def by_hand(
    folder: Path,
    fault: str | None,
    workers: int = 2,
    **given: Any,
) -> Iterator[Job]:
    """Workers that were started one by one, each with its TF_CONFIG."""
    job = Job(folder)
    plan = tfdistr.tf_config(worker=[f"127.0.0.1:{port}" for port in free_ports(workers)])
    try:
        for task in plan:
            job.start({**job.started(fault), **given}, task.to_env())
        yield job
    finally:
        job.end()


@contextlib.contextmanager
def by_mpiexec(folder: Path, fault: str | None, workers: int = 2, **given: Any) -> Iterator[Job]:
    """The script itself as the ranks of one mpiexec; each writes a result of its own.

    Ranks are warm, unless the test ends or halts one: that has to be a process that mpiexec started.
    """
    job = Job(folder)
    warm_ranks = fault is not None
    try:
        launch = (str(MPIEXEC), "-n", str(workers))
        job.start({**job.started(fault), **given}, {}, launch, warm_ranks)
        yield job
    finally:
        job.end()


@contextlib.contextmanager
def launched(
    folder: Path, fault: str | None, communication: str, workers: int = 2, **given: Any
) -> Iterator[Job]:
    """A process that calls distributed_fit() with local_cluster()."""
    job = Job(folder)
    try:
        job.start({**job.started(fault), "cluster": workers, "communication": communication, **given},
                  {"TMPDIR": str(folder)})  # fmt: skip
        yield job
    finally:
        job.end()
