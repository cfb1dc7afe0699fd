"""The run directory of a job that can resume: the description of the job, and its progress."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tfdistr.checkpoint.folder import (
    DESCRIPTION,
    RESULT,
    STOP,
    checkpoint_folder,
    checkpoints,
)
from tfdistr.errors import ArgumentError
from tfdistr.jobs.documents import plain_class_weight, plain_options, plain_params, write_document
from tfdistr.schemas import normalise, read, schema_id
from tfdistr.schemas.events import Event, event_now

if TYPE_CHECKING:
    from tfdistr.jobs.outcome import Outcome
    from tfdistr.training.job import Job

_SHOWN = 5


def is_run(folder: Path) -> bool:
    """Return whether a job with checkpoints has run in ``folder``."""
    return (folder / DESCRIPTION).is_file()


def begin_or_resume(job: Job, run_dir: Path, workers: int, tell: Callable[[Event], object]) -> Job:
    """Start a run with checkpoints in ``run_dir``, or resume the one in it, and tell where it begins."""
    if job.recovery.every is None:
        return job
    path = run_dir / DESCRIPTION
    if path.exists():
        earlier = _flat(read("run", path.read_bytes()))
        if not job.seed_given:
            job = attrs.evolve(job, seed=earlier["seed"])
        asked = _flat(normalise("run", _run("", job, workers)))
        differences = [
            f"{name}={asked.get(name)!r}, where the run has {earlier.get(name)!r}"
            for name in {**earlier, **asked}
            if asked.get(name) != earlier.get(name)
        ]
        if differences:
            raise ArgumentError(
                "Cannot resume: the job differs from the saved run. Only `epochs` may be larger.",
                received="; ".join(differences[:_SHOWN]),
                fix="Pass the arguments of that run, or another `run_dir`.",
            )
    else:
        write_document(path, _run(os.urandom(16).hex(), job, workers))
    folder = checkpoint_folder(run_dir)
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / STOP).unlink(missing_ok=True)
    if job.recovery.resume:
        tell(event_now("run", message=_beginning(job, run_dir)))
    return job


def _beginning(job: Job, run_dir: Path) -> str:
    """Return the sentence that says where the training begins."""
    complete = "This run is already complete: its result is returned, and nothing is trained."
    if result_of_run(run_dir, job.epochs) is not None:
        return complete
    reached = checkpoints(run_dir).reached()
    if reached and reached.epoch >= job.epochs:
        return complete
    return f"The run continues from {reached}." if reached else "There is no checkpoint: a new run begins."


def note_result(run_dir: Path, result: Outcome) -> None:
    """Record that a job is complete, with its result."""
    write_document(run_dir / RESULT, result.to_dict())


def result_of_run(run_dir: Path, epochs: int) -> dict[str, Any] | None:
    """Return the document of the result of a run of exactly ``epochs`` epochs; None if there is none."""
    path = run_dir / RESULT
    if not path.exists():
        return None
    result: dict[str, Any] = read("result", path.read_bytes())
    return result if result["params"]["epochs"] == epochs else None


def _run(id: str, job: Job, workers: int) -> dict[str, Any]:
    """Return the document that identifies a run: its id, and the values that must stay the same."""
    described = plain_params(job.description)
    fields = {name: value for name, value in described.items() if name not in _MAY_DIFFER}
    fields["class_weight"] = plain_class_weight(job)
    # With virtual workers, any number of workers resumes the run with bitwise identical results; and the
    # placement of layers does not change their results.
    any_number = job.same_on_any_cluster or job.virtual_workers is not None
    fields["workers"] = "any" if any_number else workers
    fields["options"] = {} if job.same_on_any_cluster else plain_options(job.options)
    return {"schema": schema_id("run"), "id": id, "job": fields}


def _flat(run: dict[str, Any]) -> dict[str, Any]:
    """Return the values of a document, with the options of the strategy among them."""
    fields = dict(run["job"])
    options = fields.pop("options")
    return {**fields, **options}


# The length of the training, the communication, and the interval of checkpoints.
_MAY_DIFFER = ("epochs", "communication", "checkpoint_every")
