"""The file of a checkpoint: whole or refused, and the one before is there."""

import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from damages import damages
from slow import few_or_many

from tfdistr.checkpoint.folder import Checkpoint, CheckpointFolder, Position, read
from tfdistr.errors import CheckpointError


def checkpoint(epoch: int = 1, step: int = 0, job: str = "this") -> Checkpoint:
    arrays = {
        "a": np.array([[1.5, -0.0], [np.nan, 3]], "float32"), "b": np.array(7, "int64"),
        "c": np.zeros((0, 3)),
        "d": np.asarray(tf.constant([1.0, 2.0], tf.bfloat16)), "e": np.array([True, False]),
    }  # fmt: skip
    notes = {"text": "\u00e9", "none": None, "workers": 1}
    return Checkpoint(job, Position(epoch, step), 10 * epoch + step, notes, arrays)


def test_a_checkpoint_comes_back_bit_by_bit(tmp_path):
    folder = CheckpointFolder(tmp_path / "checkpoints", "this")
    assert folder.newest() is None
    path = folder.save(checkpoint())
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = folder.newest()
    assert (found.job, found.position, found.total) == ("this", (1, 0), 10)
    assert found.notes == checkpoint().notes
    for name, array in checkpoint().arrays.items():
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert found.arrays[name].tobytes() == array.tobytes()


def test_the_last_two_are_kept_and_nothing_else(tmp_path):
    folder = CheckpointFolder(tmp_path, "this")
    (tmp_path / "000000-000000005.partial").write_bytes(b"of a process that was killed")
    for position in [(0, 5), (0, 10), (1, 0), (1, 3)]:
        folder.save(checkpoint(*position))
    assert sorted(os.listdir(tmp_path)) == ["000001-000000000.checkpoint", "000001-000000003.checkpoint"]
    assert folder.newest().position == (1, 3)
    folder.save(checkpoint(0, 7))  # a run that has resumed before checkpoints that were refused
    assert sorted(os.listdir(tmp_path)) == ["000000-000000007.checkpoint"]


def torn(content: bytes) -> bytes:
    return content[: len(content) // 2]


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def with_header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """Changes the header of a checkpoint, whose checksum is right again."""

    def rewrite(content: bytes) -> bytes:
        first, header, rest = content[:-32].split(b"\n", 2)
        described = json.loads(header)
        change(described)
        content = b"\n".join([first, json.dumps(described).encode(), rest])
        return content + hashlib.sha256(content).digest()

    return rewritten(rewrite)


def of_another_run(path: Path) -> None:
    CheckpointFolder(path.parent / "other", "that").save(checkpoint(2, job="that")).replace(path)


TORN = "it is torn: its checksum is not that of its content"
FOREIGN = "it does not begin as a checkpoint of tfdistr does"
HEADER = "its checksum is right, but not its header: "


@pytest.mark.parametrize(
    ("change", "reason", "part"),
    [
        (rewritten(torn), TORN, ""),
        (rewritten(lambda content: content[:-60] + bytes([content[-60] ^ 1]) + content[-59:]), TORN, ""),
        (rewritten(lambda content: b""), FOREIGN, ""),
        (rewritten(lambda content: b"PK\x03\x04" + content), FOREIGN, ""),
        (rewritten(lambda content: content.replace(b"checkpoint 2", b"checkpoint 3", 1)),
         "its format has the version 3, not 2", ""),
        (of_another_run, "it is of another run", ""),
        (lambda path: path.write_bytes(min(path.parent.glob("*.checkpoint")).read_bytes()),
         "it is the checkpoint at epoch 2, step 0, not at epoch 3, step 0", ""),
        (with_header(lambda header: header.pop("job")), HEADER, 'must have the member "job"'),
        (with_header(lambda header: header["notes"].pop("workers")), HEADER, '"workers"'),
        (with_header(lambda header: header.update(position=[1])), HEADER, "position"),
        (with_header(lambda header: header["arrays"][0].__setitem__(2, [10**6])), HEADER,
         "buffer is smaller than requested size"),
        (with_header(lambda header: header["arrays"][0].__setitem__(2, [10**30])), HEADER, "too large"),
        (with_header(lambda header: header["arrays"][0].__setitem__(1, "no_such_type")), HEADER,
         "no_such_type"),
    ],
    ids=["torn", "changed", "empty", "foreign", "version", "another run", "another name", "job", "workers",
         "position", "shape", "huge shape", "type"],
)  # fmt: skip
def test_what_is_not_whole_or_ours_is_refused_and_the_one_before_is_used(
    tmp_path, change, reason, part, caplog
):
    folder = CheckpointFolder(tmp_path, "this")
    folder.save(checkpoint(1))
    path = folder.save(checkpoint(2))
    change(path)
    with pytest.raises(CheckpointError) as caught:
        read(path, "this")
    rule, received = str(caught.value).splitlines()
    assert rule == "A checkpoint must be whole, and of this run."
    assert received.startswith(f"Received: {path}: {reason}")
    assert received.endswith(".") if part else received == f"Received: {path}: {reason}."
    assert part in received
    assert folder.newest().position == (1, 0)
    assert f"{rule} {received} It is left out." in caplog.text


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match="it cannot be read: No such file"):
        read(tmp_path / "000000-000000001.checkpoint")


def test_every_flipped_bit_and_every_cut_is_refused(tmp_path):
    path = CheckpointFolder(tmp_path, "this").save(checkpoint())
    for damaged in damages(path.read_bytes(), few_or_many(500, 8000), few_or_many(50, 800)):
        path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=r"^A checkpoint must be whole, and of this run\."):
            read(path, "this")


def test_what_is_refused_is_never_removed(tmp_path, caplog):
    """It may be whole for a run whose id is right again."""
    folder = CheckpointFolder(tmp_path, "this")
    saved = [folder.save(checkpoint(epoch)) for epoch in (1, 2)]
    contents = [path.read_bytes() for path in saved]
    other = CheckpointFolder(tmp_path, "that")  # its run.json has another id now
    assert other.newest() is None
    for epoch in (1, 2, 3, 4):
        other.save(checkpoint(epoch, job="that"))
        assert other.positions() == [(number, 0) for number in range(max(1, epoch - 1), epoch + 1)]
    kept = sorted(tmp_path.glob("*.refused"))
    assert [path.read_bytes() for path in kept] == contents
    assert caplog.text.count("It is left out.") == 2
    for path in other.path.glob("*.checkpoint"):
        path.unlink()
    for path in kept:
        path.rename(path.with_name(f"{path.name[:16]}.checkpoint"))
    assert folder.newest().position == (2, 0)


def test_a_damaged_checkpoint_before_the_newest_is_kept(tmp_path, caplog):
    """Nothing has read it when it is too old."""
    for epoch in (1, 2):
        path = CheckpointFolder(tmp_path, "this").save(checkpoint(epoch))
        if epoch == 1:
            path.write_bytes(torn(path.read_bytes()))
    assert "It is left out." in caplog.text
    assert [path.name[:16] for path in tmp_path.glob("*.refused")] == ["000001-000000000"]


def test_a_full_disk_costs_no_checkpoint_and_is_named(small_disk):
    folder = CheckpointFolder(small_disk.path / "checkpoints", "this")

    def save(epoch: int, kilobytes: int) -> Path:
        arrays = {"a": np.zeros(kilobytes << 10, np.uint8)}
        return folder.save(Checkpoint("this", Position(epoch, 0), 0, {"workers": 1}, arrays))

    save(1, 100)
    (folder.path / "000009-000000000.partial").write_bytes(bytes(600 << 10))  # of a process that was killed
    save(2, 500)
    with pytest.raises(CheckpointError) as caught:
        save(3, 600)
    assert caught.value.message == "A checkpoint could not be written: No space left on device."
    needed, free = re.findall(r"([\d,]+) bytes", str(caught.value.received))
    assert int(needed.replace(",", "")) > 600 << 10 > int(free.replace(",", ""))
    assert str(caught.value.received).startswith(f"{folder.path}/000003-000000000.checkpoint, which needs")
    assert folder.newest().position == (2, 0)
    assert list(folder.path.glob("*.partial")) == []
    small_disk.mount("remount,ro")
    with pytest.raises(CheckpointError, match="could not be written: Read-only file system"):
        save(3, 1)
    small_disk.mount("remount,rw")
    assert folder.newest().position == (2, 0)
    save(3, 1)


@pytest.mark.parametrize("call", ["open", "fsync", "rename"])
def test_a_quota_costs_no_checkpoint_and_is_named(tmp_path, monkeypatch, call):
    folder = CheckpointFolder(tmp_path, "this")
    folder.save(Checkpoint("this", Position(1, 0), 0, {"workers": 1}, {"a": np.zeros(10)}))

    def refuse(*given: Any, **more: Any) -> Any:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(CheckpointError) as caught:
        folder.save(Checkpoint("this", Position(2, 0), 0, {"workers": 1}, {"a": np.zeros(10)}))
    monkeypatch.undo()
    assert caught.value.message == "A checkpoint could not be written: Disk quota exceeded."
    path = tmp_path / "000002-000000000.checkpoint"
    assert re.fullmatch(
        rf"{path}, which needs \d+ bytes, and [\d,]+ bytes are free", str(caught.value.received)
    )
    assert caught.value.fix.startswith("Make room for two checkpoints, or make the folder writable. Then")
    assert folder.newest().position == (1, 0)
    assert [file.name for file in tmp_path.iterdir()] == ["000001-000000000.checkpoint"]
