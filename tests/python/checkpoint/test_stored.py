"""Checkpoints in a store: complete or refused, and the one before is there."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stores

from tfdistr.checkpoint.folder import DESCRIPTION, RESULT, Checkpoint, CheckpointFolder, Position
from tfdistr.checkpoint.generations import Claim, RunGeneration
from tfdistr.checkpoint.object_store import Store
from tfdistr.checkpoint.stored_checkpoints import StoredCheckpoints
from tfdistr.checkpoint.stored_documents import StoredDocuments
from tfdistr.errors import CheckpointError
from tfdistr.utils.warn import WARNINGS

URL = "memory://bucket/run"


@pytest.fixture(autouse=True)
def _memory() -> Iterator[None]:
    with stores.memory():
        yield


def checkpoint(epoch: int, step: int = 0, job: str = "this", value: float = 0.5) -> Checkpoint:
    arrays = {"a": np.full(100, value + epoch, "float32")}
    return Checkpoint(job, Position(epoch, step), 10 * epoch + step, {"workers": 1, "note": epoch}, arrays)


class Run:
    """A run in the store, and the folder of a machine."""

    def __init__(self, folder: Path, job: str = "this") -> None:
        self.store = Store(URL)
        self.claim = Claim(self.store)
        self.stored = StoredCheckpoints(self.store, self.claim)
        self.documents = StoredDocuments(self.store, self.claim)
        self.place = folder
        self.folder = CheckpointFolder(folder / "checkpoints", job)
        folder.mkdir(exist_ok=True)
        (folder / DESCRIPTION).write_text(job)

    def save(self, *position: int, **given: Any) -> None:
        if self.claim._generation is None:
            self.claim.make()
            self.documents.upload(self.place, DESCRIPTION)
        made = checkpoint(*position, **{"job": self.folder.job} | given)
        self.stored.save(made.position, self.folder.save(made))
        self.stored.prune(made.position)

    def names(self) -> list[str]:
        """The names of the objects of all checkpoints, without their folders."""
        names = self.store.names("generations/")
        return [name.rpartition("/")[2] for name in names if name.endswith((".mark", ".checkpoint"))]

    def name(self, part: str, ending: str) -> str:
        """The whole name of an object with this part and ending."""
        return next(name for name in self.store.names() if part in name and name.endswith(ending))


def elsewhere(folder: Path, job: str = "this") -> Checkpoint | None:
    """The checkpoint from which another machine continues."""
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
    assert (found.position, found.total, found.notes) == ((1, 3), 13, {"workers": 1, "note": 1})
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
    left = "000002-000000000-0123456789abcdef.checkpoint"
    run.store.write(run.claim.generation.folder + left, b"half of")
    assert run.stored.positions() == [(1, 0)]
    assert elsewhere(tmp_path).position == (1, 0)
    run.save(2)
    assert len(run.names()) == 4
    run.save(2, value=9.0)  # the same position, by a job that had to start again
    assert len(run.names()) == 4
    assert elsewhere(tmp_path).arrays["a"][0] == 11.0


def newest(run: Run, ending: str) -> str:
    return run.name("/000002-", ending)


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
    run.store.write(newest(run, ".mark"), run.store.read(run.name("/000001-", ".mark")))


def mark_of_another_generation(run: Run) -> None:
    content, own = run.store.read(newest(run, ".mark")), run.claim.generation.folder.encode()
    run.store.write(newest(run, ".mark"), content.replace(own, b"generations/000001-0123456789abcdef/"))


def another_run(run: Run) -> None:
    other = Run(run.folder.path.parent / "other", "other")
    other.claim = run.claim
    other.stored = run.stored
    other.save(2, job="other")


def later(run: Run) -> None:
    """The file of a later version of tfdistr, with a mark of it."""
    file = run.folder.path_of(Position(2, 0))
    file.write_bytes(file.read_bytes().replace(b"checkpoint 2", b"checkpoint 3", 1))
    run.stored.save(Position(2, 0), file)


@pytest.mark.parametrize(
    ("change", "named", "reason"),
    [
        (torn, "file", "it is torn: it has 568 bytes, where its mark says 575"),
        (altered, "file", "it was altered: its SHA-256 is not the one of its mark"),
        (gone, "file", "it is not there"),
        (torn_mark, "mark", "its mark is torn"),
        (another_mark, "file", "it is the checkpoint at epoch 2, step 0, not at epoch 3, step 0"),
        (mark_of_another_generation, "mark", "its mark is that of another generation"),
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
    name = mark if named == "mark" else run.store.read(mark).decode().split()[2]
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
    own = new.store.read(new.claim.generation.claim).decode().partition(" ")[2].strip()
    assert own.startswith("process ")
    assert caught.value.received == f"{URL}: {own} has taken it over"
    assert new.stored.positions() == [(1, 0), (1, 5)]
    new.store.remove(new.claim.generation.claim)  # nobody else writes
    new.save(2)


@pytest.mark.parametrize("change", [torn, altered, gone, torn_mark, later])
def test_what_a_job_has_refused_is_never_removed(tmp_path, change):
    run = Run(tmp_path / "old")
    for epoch in (1, 2):
        run.save(epoch)
    change(run)
    kept = contents(run)
    second, third = (Run(tmp_path / name) for name in ("second", "third"))
    assert second.stored.fetch(second.folder) == (1, 0)
    for epoch in (2, 3, 4):
        second.save(epoch)
    assert third.stored.fetch(third.folder) == (4, 0)  # it does not read what the second one has refused
    for epoch in (5, 6):
        third.save(epoch)
    assert contents(second) == {}
    assert contents(run) == kept | {run.claim.generation.folder + "refused": b""}


def test_nothing_of_another_run_is_removed(tmp_path):
    """It began in the same moment, and has another id."""
    run = Run(tmp_path / "other", "other")
    run.save(1)
    kept = contents(run)
    new = Run(tmp_path / "new")
    for epoch in (1, 2, 3):
        new.save(epoch)
    assert contents(run) == kept


def contents(run: Run) -> dict[str, bytes]:
    """The objects of a job."""
    names = run.store.names(run.claim.generation.folder)
    return {name: content for name in names if (content := run.store.read(name)) is not None}


def test_a_job_that_has_lost_the_run_gives_it_no_other_id(tmp_path):
    """It was paused after its claim."""
    lost, run = Run(tmp_path / "lost", "another"), Run(tmp_path / "run")
    lost.claim.make()
    for epoch in (1, 2, 3):
        run.save(epoch)
    lost.documents.upload(lost.place, DESCRIPTION)
    assert run.documents.fetch(tmp_path)
    assert (tmp_path / DESCRIPTION).read_text() == "this"
    assert elsewhere(tmp_path).position == (3, 0)


def test_the_documents_are_those_of_the_job_whose_checkpoint_is_used(tmp_path):
    """The second job began a run of its own in the same moment. Then it was killed."""
    run, other = Run(tmp_path / "run"), Run(tmp_path / "other", "other")
    assert not run.documents.fetch(tmp_path)
    run.save(1)
    other.claim.make()
    assert other.claim.generation > run.claim.generation
    for said in ("this", "other"):  # before and after the other one has a result
        other.documents.upload(other.place, DESCRIPTION)
        assert run.documents.fetch(tmp_path, RESULT)
        assert (tmp_path / DESCRIPTION).read_text() == said
        (other.place / RESULT).write_text("a result")
        other.documents.upload(other.place, RESULT)


class Removed(Store):
    """A store in which a later job removes the generation whose documents this one reads."""

    later: Any = None

    def download(self, name: str, file: Path) -> bool:
        if self.later and name.endswith(RESULT):
            later, self.later = self.later, None
            for epoch in (3, 4):
                later.save(epoch)
        return super().download(name, file)


def test_a_reader_of_documents_that_are_removed_takes_the_later_ones(tmp_path):
    run, later = Run(tmp_path / "run"), Run(tmp_path / "later")
    run.save(1)
    (run.place / "training.json").write_text("of the first")
    run.documents.upload(run.place, "training.json")
    store = Removed(URL)
    store.later = later
    assert StoredDocuments(store, Claim(store)).fetch(tmp_path, "training.json", RESULT)
    assert contents(run) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["later", "run", "run.json"]


def test_restarts_that_write_one_checkpoint_each_leave_it(tmp_path):
    for epoch in (1, 2, 3):
        run = Run(tmp_path / str(epoch))
        run.save(epoch)
    assert run.stored.positions() == [(1, 0), (2, 0), (3, 0)]
    run.save(4)
    assert run.stored.positions() == [(3, 0), (4, 0)]
    assert len({name.split("/")[1] for name in run.store.names("generations/")}) == 1


class Overtaken(Store):
    """A store in which another job saves while this one reads the newest mark."""

    def __init__(self, other: Run) -> None:
        super().__init__(URL)
        self.other = other

    def read(self, name: str) -> bytes | None:
        if self.other is not None:
            other, self.other = self.other, None
            for epoch in (3, 4, 5):
                other.save(epoch)
        return super().read(name)


def test_a_reader_finds_what_a_job_that_still_writes_has_saved_meanwhile(tmp_path, caplog):
    other = Run(tmp_path / "other")
    other.save(1)
    other.save(2)
    run = Run(tmp_path / "new")
    store = Overtaken(other)
    assert StoredCheckpoints(store, Claim(store)).fetch(run.folder) == (5, 0)
    assert caplog.text == ""


def test_a_claim_that_comes_late_is_none(tmp_path):
    class Slow(Store):
        def write(self, name: str, content: bytes) -> None:
            if name.endswith("/writer") and not self.names("generations/"):
                Run(tmp_path / "first").claim.make()
                Run(tmp_path / "second").claim.make()
            super().write(name, content)

    with pytest.raises(CheckpointError, match="has taken it over"):
        Claim(Slow(URL)).make()
    store = Store(URL)
    store.remove(max(name for name in store.names() if name.endswith("/writer")))
    late = Claim(store)
    late._generation = RunGeneration(1, "0" * 16)
    with pytest.raises(CheckpointError, match=r"process .* has taken it over"):
        late.check()
    store.write("generations/000009-0123456789abcdef/000001-000000000.mark", b"")
    with pytest.raises(CheckpointError, match="run: another job has taken it over"):
        late.check()
