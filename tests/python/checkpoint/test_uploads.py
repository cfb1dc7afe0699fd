"""Uploads while a training writes checkpoints: the newest ones, never a torn one, whatever the store does."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import stores
from launched import wait_for

from tfdistr.checkpoint import uploads
from tfdistr.checkpoint.folder import Checkpoint, CheckpointFolder, Position
from tfdistr.checkpoint.generations import Claim
from tfdistr.checkpoint.object_store import Store, StoreError
from tfdistr.checkpoint.stored_checkpoints import StoredCheckpoints
from tfdistr.checkpoint.uploads import Uploads
from tfdistr.errors import CheckpointError

URL = "s3://bucket/run"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[stores.S3Server]:
    monkeypatch.setattr(uploads, "WAITS", (0.1, 0.1))
    with stores.s3_server() as made:
        yield made


class Job:
    """What a job has of its checkpoints and uploads."""

    def __init__(
        self, folder: Path, then: Callable[[], object] = lambda: None, *, writes: bool = True
    ) -> None:
        self.folder = CheckpointFolder(folder / "checkpoints", "this")
        self.store = Store(URL)
        self.claim = Claim(self.store)
        if writes:
            self.claim.make()
        self.stored = StoredCheckpoints(self.store, self.claim)
        self.uploads = Uploads(self.folder, self.stored, then=then)

    def save(self, epoch: int) -> None:
        arrays = {"a": np.full(50_000, epoch, "float32")}
        self.folder.save(Checkpoint("this", Position(epoch, 0), epoch, {"workers": 1}, arrays))
        self.uploads.wake()


def test_training_does_not_wait_for_a_slow_store(tmp_path, server):
    job = Job(tmp_path)
    held, go = threading.Event(), threading.Event()

    def hold(method: str, path: str) -> str:
        if method == "PUT":
            held.set()
            go.wait(60)
        return "serve"

    server.answer = hold
    job.save(1)
    assert held.wait(60)
    for epoch in range(2, 40):
        job.save(epoch)  # the first one is removed here, while it is uploaded
    go.set()
    job.uploads.finish()
    assert job.stored.positions() == [(1, 0), (39, 0)]
    marks = [path for path in server.written if path.endswith(".mark")]
    assert [path.rpartition("/")[2][:6] for path in marks] == ["000001", "000039"]
    assert sorted(os.listdir(job.folder.path)) == [
        "000038-000000000.checkpoint", "000039-000000000.checkpoint",
    ]  # fmt: skip
    assert job.uploads.news() == []


def test_a_failed_upload_is_told_and_made_up_for(tmp_path, server):
    job = Job(tmp_path)
    for answer in ("fail", "cut"):
        server.answer = lambda method, path, answer=answer: answer if method == "PUT" else "serve"
        job.save(1)
        assert wait_for(lambda: job.uploads._news, 30)
        (message,) = job.uploads.news()
        assert message.startswith("Cannot upload a checkpoint: ")
        assert message.endswith(". The training continues.")
        assert {"fail": "OSError", "cut": "ConnectionClosedError"}[answer] in message
    assert job.stored.positions() == []
    with pytest.raises(StoreError, match="ConnectionClosedError"):
        job.uploads.finish()


def test_the_next_upload_or_the_end_makes_up_for_a_failed_one(tmp_path, server):
    job = Job(tmp_path)
    server.stop()
    job.save(1)
    assert wait_for(job.uploads.news, 30)
    server.start()
    job.save(2)
    assert wait_for(lambda: job.stored.positions() == [(2, 0)], 30)
    server.stop()
    job.save(3)
    assert wait_for(job.uploads.news, 30)
    server.start()
    job.uploads.finish()
    assert job.stored.positions() == [(2, 0), (3, 0)]


def test_a_short_failure_is_not_told(tmp_path, server):
    job = Job(tmp_path)
    failures = iter(["fail", "cut"])
    server.answer = lambda method, path: next(failures, "serve") if method == "PUT" else "serve"
    job.save(1)
    job.uploads.finish()
    assert job.uploads.news() == []
    assert job.stored.positions() == [(1, 0)]


def test_old_checkpoints_that_cannot_be_removed_are_told(tmp_path, server):
    job = Job(tmp_path)
    server.answer = lambda method, path: "deny" if method == "DELETE" else "serve"
    for epoch in (1, 2, 3):
        job.save(epoch)
        assert wait_for(lambda epoch=epoch: job.uploads._uploaded == (epoch, 0), 30)
    job.uploads.finish()
    assert job.uploads.news() == [
        "Cannot remove old checkpoints from the store: PermissionError: Access Denied."
    ]
    assert job.stored.positions() == [(1, 0), (2, 0), (3, 0)]


def test_logs_that_cannot_be_uploaded_are_told(tmp_path, server):
    def refused() -> None:
        raise StoreError("PermissionError: Access Denied")

    job = Job(tmp_path, refused)
    job.save(1)
    job.uploads.finish()
    assert job.uploads.news() == [
        "Cannot upload logs: PermissionError: Access Denied. The next checkpoint tries again."
    ]
    assert job.stored.positions() == [(1, 0)]


def test_a_job_that_another_one_has_followed_uploads_nothing_more(tmp_path, server):
    job = Job(tmp_path / "a")
    Job(tmp_path / "b")
    job.save(1)
    assert wait_for(lambda: job.uploads._failure, 30)
    for last_words in (job.uploads.wake, job.uploads.finish):
        with pytest.raises(CheckpointError, match="has taken it over"):
            last_words()
    assert job.stored.positions() == []
