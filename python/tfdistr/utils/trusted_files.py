"""Checks of the files in a run directory. They are executed (pickles, R's RDS), so the user must own them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tfdistr.errors import ArgumentError, TfdistrError


def why_foreign(status: os.stat_result) -> str | None:
    """Return why another user could have written to a file or a folder; None if none could (except root)."""
    if status.st_uid != os.geteuid():
        return f"it belongs to the user with id {status.st_uid}, and this process to id {os.geteuid()}"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others can write to it (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def check_parents(folder: Path, *, temporary: bool = False) -> None:
    """Refuse a folder that every user can replace, or a folder above it; it need not exist yet."""
    for parent in dict.fromkeys([*folder.parents, *folder.resolve().parents]):
        try:
            mode = parent.stat().st_mode
        except OSError:  # it will be made, for this user alone
            continue
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            what = "The folder for temporary files" if temporary else "`run_dir`"
            raise ArgumentError(
                f"{what} must not be replaceable by all users: files in it are executed.",
                received=f"{folder}, in {parent}, to which all users can write (mode {stat.S_IMODE(mode):o})",
                fix=f"Run: chmod +t {parent}. Or set TMPDIR to a folder of your own, and start again."
                if temporary
                else f"Run: chmod o-w {parent}. Or name a folder elsewhere.",
            )


def make_folders(folder: Path, above: int = 0o700) -> None:
    """Make a folder for this user alone, and the folders above it, if they do not exist."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700 if path == folder else above, exist_ok=True)
    if not missing and not folder.is_dir():  # a file, or a link to nothing
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))


def take_folder(folder: Path) -> None:
    """Make a folder private to this user; refuse it if others could have put something into it."""
    reason = why_foreign(folder.stat())
    if reason is not None:
        raise ArgumentError(
            "`run_dir` must be your own, and nobody else may write to it: files in it are executed.",
            received=f"{folder}: {reason}",
            fix="Pass a folder that does not exist yet: it is made for you alone. (The file system must "
            "support owners and modes.)",
        )
    folder.chmod(0o700)


def create_private(path: str | os.PathLike[str], mode: str = "wb") -> IO[Any]:
    """Create or empty a file, and open it. Only this user can read and write a new file.

    Args:
        mode: "wb" for bytes, "w" for text. With "x" in place of "w", the file must not exist.
    """
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if "x" in mode else os.O_TRUNC)
    return os.fdopen(os.open(path, flags, 0o600), mode.replace("x", "w"))


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Write a file in the context, private to this user. It replaces an earlier one when it is complete."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with create_private(partial) as file:
            yield file
        partial.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):  # a partial file must take no space
            partial.unlink(missing_ok=True)
        raise


def check_own(path: str | os.PathLike[str]) -> None:
    """Check that no other user could have written to a file of the run directory, or replaced it."""
    open_own(path).close()


def open_own(path: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file of the run directory whose content is executed after reading; see ``check_own``."""
    folder, name = os.path.split(os.path.abspath(path))
    try:
        # The descriptors keep the checked files, even if somebody changes the names meanwhile.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _check(Path(folder), os.fstat(descriptor))
            file = os.fdopen(os.open(name, os.O_RDONLY, dir_fd=descriptor), "rb")
        finally:
            os.close(descriptor)
    except OSError as error:
        raise TfdistrError(
            "A file of a job is missing in its run directory.",
            received=f"{path}: {error.strerror}",
            fix="Do not change the run directory while the job runs.",
        ) from error
    try:
        _check(Path(path), os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


def _check(path: Path, status: os.stat_result) -> None:
    reason = why_foreign(status)
    if reason is not None:
        raise TfdistrError(
            "A run directory must be your own, and nobody else may write to it: files in it are executed.",
            received=f"{path}: {reason}",
            fix="Train into a new run directory, which is made for you alone. (The file system must support "
            "owners and modes.)",
        )
