"""The folder of a job, for its logs and for exchange between its processes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfdistr.checkpoint.folder import DESCRIPTION
from tfdistr.checkpoint.lock import LOCK, RunLock, in_use, is_in_use
from tfdistr.checkpoint.object_store import is_url
from tfdistr.clusters.worker_process import log_path
from tfdistr.errors import ArgumentError, TfdistrError
from tfdistr.jobs.resume import is_run
from tfdistr.utils import at_exit
from tfdistr.utils.disk import BEFORE_START, writing
from tfdistr.utils.trusted_files import check_parents, make_folders, take_folder

_temporary: set[Path] = set()


def temporary_run_dir(cluster: object = None) -> Path:
    """Make a folder for a job, until exit; for several hosts in the working directory."""
    check_working_directory()
    parent = os.getcwd() if _is_elsewhere(cluster) else tempfile.gettempdir()
    check_parents(Path(parent, "tfdistr"), temporary=True)
    with writing(parent, "A temporary run directory", fix=BEFORE_START):
        folder = Path(tempfile.mkdtemp(prefix="tfdistr-", dir=parent))
    _temporary.add(folder)
    return folder


def check_working_directory() -> None:
    """Check that the working directory of this process exists: workers start in it."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise ArgumentError(
            "The working directory of this process must exist.",
            received="one that was removed",
            fix="Change to a folder that exists.",
        ) from error


@contextlib.contextmanager
def open_run_dir(
    run_dir: str | os.PathLike[str] | None,
    cluster: object = None,
    *,
    resume: bool = False,
    heartbeat_timeout: float = 30.0,
) -> Iterator[Path]:
    """Open the folder of a job: ``run_dir``, locked within the context, or a temporary one."""
    if run_dir is None:
        yield temporary_run_dir(cluster)
        return
    if is_url(run_dir):
        raise ArgumentError(
            "Only distributed_fit() accepts the URL of a store as `run_dir`.",
            received=repr(run_dir),
            fix='Pass a folder, such as run_dir="my_run".',
        )
    check_working_directory()
    folder = Path(run_dir).expanduser().absolute()
    lock = RunLock(folder, heartbeat_timeout, elsewhere=_is_elsewhere(cluster))
    try:
        try:
            _take(folder, lock, resume=resume)
        except TfdistrError:
            raise
        except (OSError, ValueError) as error:  # ValueError: a null character
            reason = getattr(error, "strerror", None) or error
            raise ArgumentError(
                "`run_dir` must be a folder that this process can create and write to.",
                received=f"{str(folder)!r}: {reason}",
                fix="Pass a folder that you may write to.",
            ) from error
        yield folder
    finally:  # also if Ctrl-C comes as soon as the lock is there
        lock.release()


def _is_elsewhere(cluster: Any) -> bool:
    """Return whether a cluster may have workers on other machines."""
    return cluster is not None and cluster.spans_hosts


def _take(folder: Path, lock: RunLock, *, resume: bool) -> None:
    """Make and lock the folder of a job, or take that of an earlier run."""
    check_parents(folder)
    if not _is_free(folder, resume=resume):
        raise in_use(folder) if is_in_use(folder) else refused(str(folder), is_run(folder), resume=resume)
    make_folders(folder, above=0o755)
    take_folder(folder)
    lock.acquire()
    if not _is_free(folder, resume=resume):  # another job has started and ended meanwhile
        raise refused(str(folder), is_run(folder), resume=resume)


def _is_free(folder: Path, *, resume: bool) -> bool:
    """Return whether a job may use a folder: it is new or empty, or has the run to resume."""
    if not folder.exists() or (resume and is_run(folder)):
        return True
    # A job that was killed before it had begun leaves no more than these.
    begun = re.compile(rf"{LOCK}(-\w+)?|{re.escape(DESCRIPTION)}\.partial")
    return folder.is_dir() and all(begun.fullmatch(path.name) for path in folder.iterdir())


def refused(folder: str, earlier: bool, *, resume: bool) -> ArgumentError:
    """Return the error of a folder, here or in a store, that a job must not write to."""
    return ArgumentError(
        "`resume` needs a run with checkpoints, or a new or empty folder."
        if resume
        else "`run_dir` must be a new or empty folder, so that no earlier run is overwritten.",
        received=folder,
        fix="Pass another folder, or resume=True to resume the run in this one."
        if earlier
        else "Pass another folder, or remove this one.",
    )


def remove_run_dir(run_dir: Path) -> None:
    """Remove a temporary folder now."""
    _temporary.discard(run_dir)
    shutil.rmtree(run_dir, ignore_errors=True)


def keep_run_dir(run_dir: Path) -> None:
    """Keep a temporary folder at exit: the logs of a failed job have more details than its error."""
    _temporary.discard(run_dir)


def keep_logs(run_dir: Path, workers: int, ending: str) -> None:
    """Rename the logs of workers that have exited."""
    for index in range(workers):
        log = log_path(run_dir, index)
        if log.exists():
            log.replace(f"{log}.{ending}")


@at_exit.register
def remove_temporary() -> None:
    """Remove the temporary folders of successful jobs."""
    for folder in _temporary:
        shutil.rmtree(folder, ignore_errors=True)
