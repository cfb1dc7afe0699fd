"""The JSON documents in the folder of a job: their writer, and ``job.json``, which describes the job."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfdistr._version import __version__
from tfdistr.checkpoint.folder import JOB, flush_folder
from tfdistr.data.source import describe_source
from tfdistr.schemas import schema_id
from tfdistr.schemas.normal_form import as_json
from tfdistr.utils.describe import describe
from tfdistr.utils.disk import writing
from tfdistr.utils.packages import PACKAGES, version_of
from tfdistr.utils.trusted_files import replacing

if TYPE_CHECKING:
    from tfdistr.training.job import Job

#: Documents of a run directory whose version is only in ``job.json``.
_WITHOUT_VERSION = ("event", "checkpoint", "trace")


def write_document(path: Path, document: Mapping[str, object]) -> None:
    """Write a document. Only this user can read it. Its file is complete or it does not exist.

    It is on the disk when this returns: no checkpoint may outlive the document that identifies its run.
    """
    content = f"{json.dumps(as_json(document), allow_nan=False)}\n".encode()
    with writing(path, needed=lambda: len(content)), replacing(path) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    flush_folder(path.parent)


def plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of a job as its documents have them: a list of epochs is no number."""
    plain = dict(params)
    if isinstance(plain.get("validation_freq"), tuple | list):
        plain["validation_freq"] = {"epochs": list(plain["validation_freq"])}
    return plain


def plain_class_weight(job: Job) -> dict[str, float]:
    """Return the weights of classes as documents have them; empty if there are none."""
    return {str(label): weight for label, weight in (job.class_weight or {}).items()}


def plain_options(options: Mapping[str, object]) -> dict[str, object]:
    """Return the options of a strategy as documents have them. A list of one is its element, as in R."""
    return {name: _plain(option) for name, option in options.items()}


def _plain(option: object) -> Any:
    if isinstance(option, list | tuple):
        return _plain(option[0]) if len(option) == 1 else list(map(_plain, option))
    return option if option is None or isinstance(option, bool | int | float | str) else describe(option)


def write_job(job: Job, run_dir: Path, workers: int) -> None:
    """Write ``job.json``: the description of the job, without data, functions and environment variables."""
    recovery = job.recovery
    document = {
        "schema": schema_id("job"),
        "schemas": {name: schema_id(name) for name in _WITHOUT_VERSION},
        "time": time.time(),
        "versions": _versions(),
        "task": job.task,
        "workers": workers,
        "data": describe_source(job.data),
        "validation": describe_source(job.validation),
        "arguments": {
            **plain_params(job.params),
            "class_weight": plain_class_weight(job),
            "start_timeout": job.start_timeout,
            "heartbeat_timeout": job.heartbeat_timeout,
            "step_timeout": job.recovery.step_timeout,
            "resume": recovery.resume,
            "max_restarts": recovery.max_restarts,
            "min_workers": recovery.min_workers,
        },
        "options": plain_options(job.options),
    }
    write_document(run_dir / JOB, document)


def _versions() -> dict[str, str | None]:
    packages = {name: version_of(*distributions) for name, distributions in PACKAGES.items()}
    return {"tfdistr": __version__, "python": platform.python_version(), **packages}
