"""A run in a folder or a store: its description, its trace and its checkpoints. Nothing of it is executed."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras

from tfdistr.checkpoint.folder import DESCRIPTION, JOB, CheckpointFolder, checkpoints
from tfdistr.checkpoint.generations import Claim
from tfdistr.checkpoint.object_store import Store, StoreError, is_url, unreachable
from tfdistr.checkpoint.stored_checkpoints import StoredCheckpoints
from tfdistr.checkpoint.stored_documents import StoredDocuments
from tfdistr.checkpoint.trace import TRACE, Trace, read_trace
from tfdistr.errors import ArgumentError
from tfdistr.schemas import read
from tfdistr.utils.arguments import check_optional_path, whole_number

#: The strategies whose steps one process can make again.
_STRATEGIES = ("multi_worker_mirrored", "one_device", "model_parallel")


@dataclass(frozen=True)
class KeptRun:
    """A run, as its files describe it.

    Attributes:
        place: The folder or the URL of the run.
        job: The values of the job that stay the same, from ``run.json``.
        trace: The trace of its steps.
        checkpoints: The folder of its checkpoints.
        refused: Why checkpoints in a store were left out.
    """

    place: str
    job: dict[str, Any]
    trace: Trace
    checkpoints: CheckpointFolder
    refused: Sequence[str] = ()

    @property
    def exactly(self) -> Any:
        """The number of virtual workers, or "one worker", for bitwise identical steps; otherwise None."""
        workers = {start["workers"] for start in self.trace.starts}
        return self.job["virtual_workers"] or ("one worker" if workers == {1} else None)

    def shares(self, step: int) -> int:
        """Return the number of parts in which the rows of a step were computed."""
        return int(self.job["virtual_workers"] or self.trace.start_of(step)["workers"])

    def check_step(self, step: Any) -> int:
        """Return the number of a step that the trace has; "nan" is the first one that is not finite."""
        traced = sorted(self.trace.steps)
        if isinstance(step, str) and step == "nan":
            bad = [number for number in traced if not self.trace.steps[number].is_finite]
            if not bad:
                raise ArgumentError(
                    '`step` can be "nan" if a step of the run is not finite.',
                    received=f"{len(traced)} steps with finite losses and gradients, of {self.place}",
                    fix=f"Pass the number of a step, such as step={traced[-1]}.",
                )
            return bad[0]
        number = whole_number(step)
        if number is None or number not in self.trace.steps:
            raise ArgumentError(
                '`step` must be the number of a step in the trace of the run, or "nan".',
                received=f"{step!r}, where {self.place} has the steps {traced[0]} to {traced[-1]}",
                fix=f"Pass step={traced[-1]}, for example.",
            )
        return number


@contextlib.contextmanager
def open_kept(run: Any) -> Iterator[KeptRun]:
    """Open a run in a folder, or a copy of a run in a store.

    Raises:
        ArgumentError: There is no run with checkpoints, or no process can make its steps again.
    """
    run = check_optional_path("run", run)
    if run is None:
        raise _no_run("no folder")
    if not is_url(run):
        yield _read(Path(run).expanduser(), str(run))
        return
    with tempfile.TemporaryDirectory(prefix="tfdistr-") as copy:
        refused = _fetch(run, Path(copy))
        yield replace(_read(Path(copy), run), refused=refused)


def _fetch(url: str, folder: Path) -> list[str]:
    store = Store(url)
    claim = Claim(store)
    try:
        if StoredDocuments(store, claim).fetch(folder, JOB):
            read("run", (folder / DESCRIPTION).read_bytes())  # others could have changed it
            refused = StoredCheckpoints(store, claim).fetch_all(checkpoints(folder))
            store.download(TRACE, folder / TRACE)  # last: a run that trains uploads it before its checkpoints
            return refused
    except StoreError as error:
        raise unreachable(store.url, error) from error
    return []


def _read(run_dir: Path, place: str) -> KeptRun:
    if not (run_dir / DESCRIPTION).is_file():
        raise _no_run(place)
    job = read("run", (run_dir / DESCRIPTION).read_bytes())["job"]
    path = run_dir / JOB
    arguments = read("job", path.read_bytes())["arguments"] if path.is_file() else {}
    _check_can_be_replayed(job, arguments, place)
    trace = read_trace(run_dir)
    if not trace.steps:
        raise ArgumentError(
            "A run can be examined if its trace has steps.",
            received=f"{place}, which ended before its first checkpoint",
            fix="Train with checkpoint_every=100, for example, so that the trace is written more often.",
        )
    _check_version(trace.starts[-1]["versions"])
    return KeptRun(place, job, trace, checkpoints(run_dir))


def _no_run(place: str) -> ArgumentError:
    return ArgumentError(
        "`run` must be the folder or the URL of a run with checkpoints.",
        received=place,
        fix='Train with run_dir="my_run" and checkpoint_every="epoch", and pass run="my_run".',
    )


def _check_can_be_replayed(job: dict[str, Any], arguments: dict[str, Any], place: str) -> None:
    several = job["workers"] not in (1, "any")
    obstacle = None
    if job["strategy"] not in _STRATEGIES:
        obstacle = f"the strategy {job['strategy']!r}, whose updates depend on several processes or devices"
    elif several and arguments.get("communication") == "nccl":
        obstacle = "communication='nccl', whose sums another machine does not round alike"
    if obstacle is not None:
        raise ArgumentError(
            "One process must be able to make the steps of the run again.",
            received=f"{obstacle}, in {place}",
            fix="Train with strategy='multi_worker_mirrored' and virtual_workers=4, for example.",
        )


def _check_version(versions: dict[str, Any]) -> None:
    made = versions.get("version of Keras")
    if made is not None and made != keras.__version__:
        raise ArgumentError(
            "A step must be replayed with the version of Keras that has made it.",
            received=f"Keras {keras.__version__}, where the run has Keras {made}",
            fix=f"Install it: pip install keras=={made}",
        )
