"""Checkpoints in a store: complete or refused, and the one before is there."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stores

from tfdistr._utils.store import Store
from tfdistr._utils.warn import WARNINGS
from tfdistr.checkpoint.claim import Claim
from tfdistr.checkpoint.folder import Checkpoint, CheckpointFolder, Position
from tfdistr.checkpoint.stored import StoredCheckpoints
from tfdistr.errors import CheckpointError

URL = "memory://bucket/run"


@pytest.fixture(autouse=True)
def _memory() -> Iterator[None]:
    with stores.memory():
        yield


def checkpoint(epoch: int, step: int = 0, job: str = "this", value: float = 0.5) -> Checkpoint:
    arrays = {"a": np.full(100, value + epoch, "float32")}
    return Checkpoint(job, Position(epoch, step), 10 * epoch + step, {"note": epoch}, arrays)


class Run:
    """A run in the store, and the folder of a machine."""

    def __init__(self, folder: Path, job: str = "this") -> None:
        self.store = Store(URL)
        self.claim = Claim(self.store)
        self.stored = StoredCheckpoints(self.store, self.claim)
        self.folder = CheckpointFolder(folder / "checkpoints", job)

    def save(self, *position: int, **given: Any) -> None:
        made = checkpoint(*position, **given)
        self.stored.save(made.position, self.folder.save(made))
        self.stored.prune(made.position)

    def names(self) -> list[str]:
        return self.store.names("checkpoints/")


def elsewhere(folder: Path, job: str = "this") -> Checkpoint | None:
    """The checkpoint from which another machine goes on."""
    run = Run(Path(tempfile.mkdtemp(dir=folder)), job)
    position = run.stored.fetch(run.folder)
    found = run.folder.newest()
    assert position == (found.position if found else None)
    assert [path.name for path in run.folder.path.iterdir()] == (
        [run.folder.path_of(position).name] if position else []
    )
    return found


def test_another_machine_goes_on_with_the_newest_one(tmp_path):
    run = Run(tmp_path)
    assert elsewhere(tmp_path) is None
    for position in ((0, 5), (0, 10), (1, 0), (1, 3)):
        run.save(*position)
    assert [name.partition("-")[2][:9] for name in run.names()] == ["000000000"] * 2 + ["000000003"] * 2
    assert run.stored.positions() == [(1, 0), (1, 3)]
    found = elsewhere(tmp_path)
    assert (found.position, found.total, found.notes) == ((1, 3), 13, {"note": 1})
    assert found.arrays["a"].tobytes() == checkpoint(1, 3).arrays["a"].tobytes()


def test_a_run_that_goes_on_earlier_removes_what_was_refused(tmp_path):
    run = Run(tmp_path)
    for epoch in (1, 2, 5):
        run.save(epoch)
    run.save(3, value=7.0)
    assert run.stored.positions() == [(2, 0), (3, 0)]
    assert len(run.names()) == 4


def test_what_cut_off_uploads_have_left_is_removed(tmp_path):
    run = Run(tmp_path)
    run.save(1)
    run.store.write("checkpoints/000002-000000000-0123456789abcdef.checkpoint", b"half of")
    assert run.stored.positions() == [(1, 0)]
    assert elsewhere(tmp_path).position == (1, 0)
    run.save(2)
    assert len(run.names()) == 4
    run.save(2, value=9.0)  # the same position, by a job that had to begin anew
    assert len(run.names()) == 4
    assert elsewhere(tmp_path).arrays["a"][0] == 11.0


def newest(run: Run, ending: str) -> str:
    return next(name for name in run.names() if "/000002-" in name and name.endswith(ending))


def torn(run: Run) -> None:
    name = newest(run, ".checkpoint")
    run.store.write(name, run.store.read(name)[:-7])


def altered(run: Run) -> None:
    name = newest(run, ".checkpoint")
    content = run.store.read(name)
    run.store.write(name, content[:-60] + bytes([content[-60] ^ 1]) + content[-59:])


def gone(run: Run) -> None:
    run.store.remove(newest(run, ".checkpoint"))


def torn_mark(run: Run) -> None:
    run.store.write(newest(run, ".mark"), run.store.read(newest(run, ".mark"))[:-7])


def another_mark(run: Run) -> None:
    run.store.write(newest(run, ".mark"), run.store.read("checkpoints/000001-000000000.mark"))


def another_run(run: Run) -> None:
    Run(run.folder.path.parent / "other", "other").save(2, job="other")


def later(run: Run) -> None:
    """The file of a later version of tfdistr, with a mark of it."""
    file = run.folder.path_of(Position(2, 0))
    file.write_bytes(file.read_bytes().replace(b"checkpoint 2", b"checkpoint 3", 1))
    run.stored.save(Position(2, 0), file)


@pytest.mark.parametrize(
    ("change", "named", "reason"),
    [
        (torn, "file", "it is torn: it has 554 bytes, where its mark says 561"),
        (altered, "file", "it was altered: its SHA-256 is not the one of its mark"),
        (gone, "file", "it is not there"),
        (torn_mark, "mark", "its mark is torn"),
        (another_mark, "file", "it is the checkpoint at epoch 2, step 0, not at epoch 3, step 0"),
        (another_run, "file", "it is of another run"),
        (later, "file", "its format has the version 3, not 2"),
    ],
)
def test_what_is_not_whole_or_ours_is_refused_and_the_one_before_is_used(
    tmp_path, monkeypatch, change, named, reason
):
    warnings: list[str] = []
    monkeypatch.setattr(WARNINGS, "tell", warnings.append)
    run = Run(tmp_path)
    run.save(1)
    run.save(2)
    change(run)
    mark = newest(run, ".mark")
    name = mark if named == "mark" else f"checkpoints/{run.store.read(mark).decode().split()[2]}"
    found = elsewhere(tmp_path)
    assert found.position == (1, 0)
    assert warnings == [
        f"A checkpoint must be whole, and of this run. Received: {URL}/{name}: {reason}. It is left out."
    ]
    run.save(2)
    assert elsewhere(tmp_path).position == (2, 0)


def test_only_the_job_that_has_begun_last_writes(tmp_path):
    old, new = Run(tmp_path / "old"), Run(tmp_path / "new")
    old.claim.make()
    old.save(1)
    new.claim.make()
    new.save(1, 5)
    with pytest.raises(CheckpointError) as caught:
        old.save(2)
    own = new.store.read("writer").decode().partition(" ")[2].strip()
    assert own.startswith("process ")
    assert str(caught.value).splitlines() == [
        "Only one job at a time may write to a run in a store.",
        f"Received: {URL}: {own} has taken it over",
        "Fix: End one of the two jobs, or pass another `run_dir`.",
    ]
    assert new.stored.positions() == [(1, 0), (1, 5)]
    new.store.remove("writer")  # nobody else writes
    new.save(2)
