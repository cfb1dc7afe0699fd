"""The chain of the checkpoints of a run: each has the hashes of what was there when it was written.

These are the checkpoint before, the description of the job and the trace up to the checkpoint. The first line
of the trace has the digest of the data and the versions. So a file that is changed later no longer fits the
checkpoints after it. Somebody who has all files can compute all hashes again: a chain is no signature.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tfdistr.checkpoint.folder import DESCRIPTION, Checkpoint, CheckpointFolder, checksum_of, read
from tfdistr.checkpoint.trace import TRACE
from tfdistr.errors import CheckpointError

#: The name of the link among the notes of a checkpoint.
LINK = "chain"
_BLOCK = 1 << 20  # bytes


class Chain:
    """The chain of a running training, on its chief.

    Args:
        run_dir: The folder of the run.
        found: The checkpoint at which the training starts: the chain continues there.
    """

    def __init__(self, run_dir: Path, found: Checkpoint | None) -> None:
        self._run_dir = run_dir
        self._number = found.notes[LINK]["number"] if found and LINK in found.notes else 0
        self._before = found.checksum if found else None
        self._hash, self._bytes = hashlib.sha256(), 0  # of the trace, which only grows

    def link(self) -> dict[str, Any]:
        """Return the link of the next checkpoint."""
        with contextlib.suppress(FileNotFoundError), open(self._run_dir / TRACE, "rb") as file:
            file.seek(self._bytes)
            while block := file.read(_BLOCK):
                self._hash.update(block)
                self._bytes += len(block)
        return {
            "number": self._number + 1, "before": self._before, "job": _digest_of_job(self._run_dir),
            "trace": [self._bytes, self._hash.hexdigest()],
        }  # fmt: skip

    def saved(self, path: Path) -> None:
        """Continue after the checkpoint in this file, which was just written."""
        self._number, self._before = self._number + 1, checksum_of(path)


def _digest_of_job(run_dir: Path) -> str:
    path = run_dir / DESCRIPTION
    return hashlib.sha256(path.read_bytes() if path.exists() else b"").hexdigest()


def read_chain(folder: CheckpointFolder) -> tuple[list[Checkpoint], list[str]]:
    """Return the whole checkpoints of a folder, without arrays, and what does not chain, in words."""
    found, broken = [], []
    for position in folder.positions():
        path = folder.path_of(position)
        try:
            each = read(path, folder.job)
        except CheckpointError as error:
            broken.append(str(error.received).rstrip("."))
            continue
        found.append(dataclasses.replace(each, arrays={}))
    return found, [*broken, *_broken(found, folder.path.parent)]


def is_first(checkpoint: Checkpoint) -> bool:
    """Return whether a checkpoint is the first one of its run."""
    return bool(checkpoint.notes.get(LINK, {}).get("number") == 1)


def _broken(found: Sequence[Checkpoint], run_dir: Path) -> Iterator[str]:
    job, path = _digest_of_job(run_dir), run_dir / TRACE
    trace = path.read_bytes() if path.exists() else b""
    before: Checkpoint | None = None
    for each in found:
        link, name = each.notes.get(LINK), f"the checkpoint after step {each.total}"
        if link is None:
            yield f"{name} has no hashes of what was before it"
        else:
            if reason := _does_not_follow(before, each, link):
                yield f"{name} {reason}"
            if link["job"] != job:
                yield f"{name} was written with another {DESCRIPTION}"
            size, digest = link["trace"]
            if hashlib.sha256(trace[:size]).hexdigest() != digest:
                yield f"{TRACE} was changed after {name} was written"
        before = each


def _does_not_follow(before: Checkpoint | None, each: Checkpoint, link: dict[str, Any]) -> str | None:
    """Return why a checkpoint does not follow the one before; None if it does, or if some are gone."""
    if before is None:
        return "is not the first one" if link["number"] == 1 and link["before"] is not None else None
    number = before.notes.get(LINK, {"number": 0})["number"]
    if each.total <= before.total or link["number"] <= number:
        return f"does not come after the one after step {before.total}"
    if link["number"] == number + 1 and link["before"] != before.checksum:
        return f"has another hash of the one after step {before.total}: one of both is not that of the run"
    return None
