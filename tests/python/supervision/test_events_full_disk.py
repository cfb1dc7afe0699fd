"""Workers whose disk is full: their launcher hears of all that matters."""

import errno
import json
import os

import pytest
from disks import Disk
from launched import CARRIERS
from launched_job import Job, LocalJob

from tfdistr.supervision.events import EventReader, EventWriter, events_path
from tfdistr.supervision.supervisor import WorkerStatus

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(params=CARRIERS)
def job(request: pytest.FixtureRequest, small_disk: Disk, _small_servers: None) -> Job:
    """A job of each carrier, on a disk of 1 MB."""
    return LocalJob(small_disk.path / "run", request.param)


def full_disk_warnings(job: Job) -> list[str]:
    messages = [event["message"] for event in job.of("warning")]
    return [message for message in messages if "Cannot write logs and events" in message]


def test_workers_go_on_without_events_and_logs(job):
    statuses: list[WorkerStatus] = job.run("finish_on_full_disk,finish_on_full_disk", 2)
    assert [status.status for status in statuses] == ["done", "done"]
    assert {event["worker"] for event in job.of("done")} == {0, 1}
    told = full_disk_warnings(job)
    assert len(told) == 2
    assert told[0].startswith(f"Cannot write logs and events to the disk of {job.run_dir}: it is full")


def test_the_error_of_a_worker_reaches_the_launcher(job):
    error = job.fail("fail_on_full_disk,finish", 2)
    assert error.worker == 0
    assert "ValueError: bad loss" in error.traceback
    assert len(full_disk_warnings(job)) == 1


def test_a_worker_that_ends_without_a_word_on_a_full_disk(job):
    error = job.fail("killed_on_full_disk,finish", 2)
    assert error.worker == 0
    assert error.fix.startswith(f"The disk of {job.run_dir} is full, which may be the reason. Make room")


def test_an_event_after_one_that_was_cut_is_whole(small_disk, monkeypatch):
    writer = EventWriter(small_disk.path, 0)
    small_disk.fill()
    for epoch in range(200):  # the last block of the file takes some
        writer.write("epoch_begin", epoch=epoch)
    writer.write("done", seconds=1.0)
    small_disk.free()
    writer.write("epoch_begin", epoch=200)
    events = EventReader(small_disk.path, 1).poll()
    epochs = [event["epoch"] for event in events if event["event"] == "epoch_begin"]
    assert 0 < len(epochs) < 200
    assert epochs[-1] == 200
    assert [event["event"] for event in events if event["event"] != "epoch_begin"] == ["warning", "done"]
    writer.close()
    assert [path.name for path in events_path(small_disk.path, 0).parent.iterdir()] == ["events.jsonl"]


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.EROFS])
def test_other_refusals_of_a_disk(tmp_path, monkeypatch, number):
    writer = EventWriter(tmp_path, 0)
    write = os.write
    refused: list[bytes] = []

    def refuse(file: int, content: bytes) -> int:
        if not refused:
            refused.append(content)
            raise OSError(number, os.strerror(number))
        return write(file, content)

    monkeypatch.setattr(os, "write", refuse)
    writer.write("done", seconds=1.0)
    assert json.loads(refused[0])["event"] == "done"
    assert {event["event"] for event in EventReader(tmp_path, 1).poll()} == {"warning", "done"}
