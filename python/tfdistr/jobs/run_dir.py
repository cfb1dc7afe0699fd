"""The folder of a job, for its logs and for exchange between its processes."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from tfdistr._utils import at_exit
from tfdistr._utils.store import is_url
from tfdistr._utils.trusted_files import check_parents, make_folders, take_folder
from tfdistr.errors import ArgumentError, TfdistrError
from tfdistr.jobs.resume import is_run
from tfdistr.launch.hosts import WorkersOnHosts
from tfdistr.launch.process import log_path
from tfdistr.launch.ray_cluster import RayCluster
from tfdistr.launch.slurm_cluster import SlurmCluster

_temporary: set[Path] = set()


def make_run_dir(
    run_dir: str | os.PathLike[str] | None, cluster: Any = None, *, resume: bool = False
) -> Path:
    """The folder of a job: ``run_dir``, or a temporary one that is removed at exit.

    With ``resume``, it may be the folder of an earlier run.

    For a cluster of several hosts it is in the working directory, which the hosts are more likely to share.

    Raises:
        ArgumentError: ``run_dir`` exists and is not empty, or others can write to it or replace it.
    """
    if run_dir is None:
        parent = os.getcwd() if isinstance(cluster, WorkersOnHosts | RayCluster | SlurmCluster) else None
        folder = Path(tempfile.mkdtemp(prefix="tfdistr-", dir=parent))
        _temporary.add(folder)
        return folder
    if is_url(run_dir):
        raise ArgumentError(
            "Only distributed_fit() takes the URL of a store as `run_dir`.",
            received=repr(run_dir),
            fix='Pass a folder, such as run_dir="my_run".',
        )
    folder = Path(run_dir).expanduser().absolute()
    try:
        return _take(folder, resume=resume)
    except TfdistrError:
        raise
    except (OSError, ValueError) as error:  # ValueError: a null character
        reason = getattr(error, "strerror", None) or error
        raise ArgumentError(
            "`run_dir` must be a folder that this process can make, and write to.",
            received=f"{str(folder)!r}: {reason}",
            fix="Name a folder where you may write.",
        ) from error


def _take(folder: Path, *, resume: bool) -> Path:
    """Make the folder of a job, or take that of an earlier run."""
    check_parents(folder)
    earlier = is_run(folder)
    if folder.exists() and not (earlier and resume) and (not folder.is_dir() or any(folder.iterdir())):
        raise refused(str(folder), earlier=earlier, resume=resume)
    make_folders(folder, above=0o755)
    take_folder(folder)
    return folder


def refused(folder: str, *, earlier: bool, resume: bool) -> ArgumentError:
    """The error of a folder, here or in a store, that a job must not write to.

    Args:
        folder: The folder.
        earlier: Whether it has a run with checkpoints.
        resume: Whether the user wants to go on with a run.
    """
    return ArgumentError(
        "`resume` goes on with a run that has checkpoints, or begins in a new or empty folder."
        if resume
        else "`run_dir` must be a new or empty folder, so that no earlier run is overwritten.",
        received=folder,
        fix="Name another folder, or pass resume=True to go on with the run in this one."
        if earlier
        else "Name another folder, or remove this one.",
    )


def remove_run_dir(run_dir: Path) -> None:
    """Remove a temporary folder now."""
    _temporary.discard(run_dir)
    shutil.rmtree(run_dir, ignore_errors=True)


def keep_run_dir(run_dir: Path) -> None:
    """Keep a temporary folder at exit: the logs of a failed job say more than its error."""
    _temporary.discard(run_dir)


def keep_logs(run_dir: Path, workers: int, ending: str) -> None:
    """Rename the logs of workers that have ended."""
    for index in range(workers):
        log = log_path(run_dir, index)
        if log.exists():
            log.replace(f"{log}.{ending}")


@at_exit.register
def remove_temporary() -> None:
    """Remove the temporary folders of successful jobs."""
    for folder in _temporary:
        shutil.rmtree(folder, ignore_errors=True)
