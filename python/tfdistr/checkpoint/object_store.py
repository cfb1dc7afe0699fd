"""Objects in a store that a URL names, such as an S3 bucket. fsspec and its libraries access it.

The libraries find credentials by themselves (environment variables, files); nothing here reads them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from tfdistr.errors import ArgumentError
from tfdistr.utils.trusted_files import make_folders

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://(.*)", re.DOTALL)
#: The form of a URL that went through a Path.
_URL_OF_PATH = re.compile(r"([a-z][a-z0-9+.-]+):/(?!/)")
#: The library of a protocol, and the extra that installs it.
_LIBRARIES = {"s3": ("s3fs", "s3"), "s3a": ("s3fs", "s3"), "gs": ("gcsfs", "gcs"), "gcs": ("gcsfs", "gcs")}
_Result = TypeVar("_Result")


class StoreError(Exception):
    """A failed operation on a store; the text is the reason from the store or its library."""


def is_url(run_dir: object) -> bool:
    """Return whether a run directory is the URL of a store; refuse a ``Path`` that was made from a URL."""
    if isinstance(run_dir, os.PathLike) and (path := _URL_OF_PATH.match(os.fspath(run_dir))):
        raise ArgumentError(
            "`run_dir` must be text if it is a URL: a Path loses one of the slashes.",
            received=repr(run_dir),
            fix=f'Pass run_dir="{path[1]}://bucket/run", for example.',
        )
    return isinstance(run_dir, str) and _URL.match(run_dir) is not None


class Store:
    """The objects below one URL. Each method raises a ``StoreError`` if the store does not answer."""

    def __init__(self, url: str) -> None:
        _check_plain(url)
        protocol, _, place = url.partition("://")
        self.url = f"{protocol}://{place.rstrip('/')}"
        self._system = _file_system(protocol, self.url)
        self._root = str(self._system._strip_protocol(self.url)).rstrip("/")
        if not self._root:
            raise ArgumentError(
                "A URL as `run_dir` must name a bucket.",
                received=repr(url),
                fix=f'Pass run_dir="{protocol}://bucket/run", for example.',
            )

    def names(self, folder: str = "") -> list[str]:
        """Return the names of all objects below ``folder``, relative to the URL."""
        place = self._path(folder).rstrip("/")
        found = _answer(lambda: list(self._system.find(place)), missing=list[str]())
        begin = len(self._root) + 1
        return sorted(name for path in found if (name := path[begin:]))

    def read(self, name: str) -> bytes | None:
        """Return the content of an object; None if there is no such object."""
        return _answer(lambda: bytes(self._system.cat_file(self._path(name))), missing=None)

    def write(self, name: str, content: bytes) -> None:
        """Write a small object."""
        self._put(name, lambda path: self._system.pipe_file(path, content))

    def upload(self, name: str, file: Path) -> None:
        """Write an object from a file."""
        self._put(name, lambda path: self._system.put_file(str(file), path))

    def download(self, name: str, file: Path) -> bool:
        """Write an object into a file of this machine; False if there is no such object."""

        def get() -> bool:
            self._system.get_file(self._path(name), str(file))
            return True

        there = _answer(get, missing=False)
        if not there:
            file.unlink(missing_ok=True)  # some libraries create the file before the request
        return there

    def remove(self, name: str) -> None:
        """Remove an object, if there is one."""
        _answer(lambda: self._system.rm_file(self._path(name)), missing=None)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _put(self, name: str, put: Callable[[str], object]) -> None:
        path = self._path(name)

        def ask() -> None:
            # Object stores have no folders: making one would make a bucket.
            local = "file" in self._system.protocol
            if local:
                make_folders(Path(path).parent)
            put(path)
            if local:
                os.chmod(path, 0o600)

        _answer(ask)


_RAISE: Any = object()


def _answer(ask: Callable[[], _Result], missing: Any = _RAISE) -> _Result:
    """Return the answer of a store; ``missing`` if it does not have the object."""
    try:
        return ask()
    except Exception as error:  # each library has its own errors
        if missing is not _RAISE and isinstance(error, FileNotFoundError):
            return missing  # type: ignore[no-any-return]
        raise StoreError(_reason(error)) from error


def _reason(error: BaseException) -> str:
    """Return the store's reason for an error. Libraries wrap network errors in others, which say less."""
    text = str(error).strip() or str(error.__cause__ or "").strip()
    return f"{type(error).__name__}: {' '.join(text.split()).rstrip('.')}" if text else type(error).__name__


def _check_plain(url: str) -> None:
    """Refuse a password: the URL is in messages and in the result."""
    parts = urlsplit(url)
    if parts.password is not None:
        raise ArgumentError(
            "A URL as `run_dir` must have no password: it is shown in messages and results.",
            received=f"a URL of {parts.hostname} with a password",
            fix="Pass the password as the store's library reads it: in environment variables or a file.",
        )


def _file_system(protocol: str, url: str) -> Any:
    library, extra = _LIBRARIES.get(protocol, (None, None))
    try:
        import fsspec

        kind = fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        raise ArgumentError(
            f"`run_dir` with {protocol}:// needs the package {library or 'that fsspec has for it'}.",
            received=f"no {library}" if library else str(error),
            fix=f"pip install 'tfdistr[{extra}]'" if library else "Install that package for this process.",
        ) from error
    except ValueError as error:
        raise ArgumentError(
            "`run_dir` must be a folder, or a URL with a protocol that fsspec knows.",
            received=repr(url),
            fix='Pass run_dir="s3://bucket/run" or run_dir="gs://bucket/run", for example.',
        ) from error
    try:
        # A cached listing would hide newer objects.
        return kind(use_listings_cache=False, skip_instance_cache=True)
    except Exception as error:  # such as missing credentials, if the library needs them at once
        raise unreachable(url, _reason(error)) from error


def unreachable(url: str, reason: object) -> ArgumentError:
    """Return the error of a store that cannot be used at the start of a job."""
    return ArgumentError(
        "Cannot access the store of `run_dir`.",
        received=f"{url}: {reason}",
        fix="Check that the bucket exists, and that the store's library finds its credentials.",
    )
