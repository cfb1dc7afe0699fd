"""A disk that is full, at each moment of a job: a clear error or a finished run, and nothing is lost."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import pytest
from disks import Disk, fill, small_disk_at
from launched import processes_of
from resumed import bits, train

import tfdistr
from tfdistr.checkpoint.folder import CheckpointFolder, Position, checkpoint_folder
from tfdistr.errors import CheckpointError, TfdistrWarning, WorkerFailedError
from tfdistr.jobs import on_cluster

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:The disk of:tfdistr.TfdistrWarning"),
]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk_at(tmp_path / "disk", "4m") as mounted:
        yield mounted
        assert not processes_of(mounted.path / "run")


class Fills(keras.callbacks.Callback):
    """Fills a disk at one moment of the training of the chief; all workers print at all times."""

    def __init__(self, folder: Path, moment: str) -> None:
        super().__init__()
        self.folder, self.moment = folder, moment

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.at(f"epoch {epoch}")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        print("a line of the log of the worker, " * 200, flush=True)

    def on_train_end(self, logs: Any = None) -> None:
        self.at("end")

    def at(self, moment: str) -> None:
        if moment == self.moment and tfdistr.worker_index() == 0:
            fill(self.folder)


def job(way: str, run_dir: Path | None, **given: Any) -> tfdistr.FitResult:
    """Train in this process or on two workers; the caller's ``callbacks`` are made in each process."""
    if way != "here":
        strategy = tfdistr.multi_worker_mirrored(communication=way)
        given |= {"cluster": tfdistr.local_cluster(2), "strategy": strategy}
    return train(run_dir, epochs=3, **given)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[bytes]]:
    """What each way gives on a disk with room, as it is asked for."""
    return functools.cache(lambda way: bits(job(way, tmp_path_factory.mktemp("undisturbed") / way)))


def positions(run_dir: Path) -> list[Position]:
    return CheckpointFolder(checkpoint_folder(run_dir)).positions()


def test_a_disk_that_is_full_before_the_start(disk, undisturbed):
    run_dir = disk.path / "run"
    disk.fill()
    with pytest.raises(CheckpointError, match=r"could not be written: No space left on device\.") as caught:
        job("here", run_dir)
    assert f"{run_dir}/lock, which needs " in caught.value.received
    assert caught.value.received.endswith(" bytes, and 0 bytes are free")
    disk.free()
    assert bits(job("here", run_dir, resume=True)) == undisturbed("here")


@pytest.mark.parametrize("way", ["here", "ring"])
def test_a_disk_that_becomes_full_after_the_first_epoch(disk, undisturbed, way):
    run_dir = disk.path / "run"
    error = CheckpointError if way == "here" else WorkerFailedError
    with pytest.raises(error) as caught:
        job(way, run_dir, callbacks=lambda: [Fills(disk.path, "epoch 1")])
    assert "A checkpoint could not be written: No space left on device." in str(caught.value)
    assert "000002-000000000.checkpoint, which needs " in str(caught.value)
    assert "Fix: Make room for two checkpoints" in str(caught.value)
    assert positions(run_dir) == [(1, 0)]
    disk.free()
    assert bits(job(way, run_dir, resume=True)) == undisturbed(way)


def test_a_disk_that_becomes_full_before_the_result(disk, undisturbed):
    run_dir = disk.path / "run"
    with pytest.raises(WorkerFailedError) as caught:
        job("ring", run_dir, callbacks=lambda: [Fills(disk.path, "end")])
    assert "The trained model could not be written: No space left on device." in str(caught.value)
    assert f"{run_dir}/model.npz, which needs " in str(caught.value)
    assert positions(run_dir) == [(2, 0), (3, 0)]
    assert not list(run_dir.glob("*.partial"))
    disk.free()
    assert bits(job("ring", run_dir, resume=True)) == undisturbed("ring")


def test_a_result_without_its_document_is_not_lost(disk, undisturbed, monkeypatch):
    run_dir = disk.path / "run"
    rows = on_cluster._rows

    def fill_then_rows(*given: Any) -> Any:
        disk.fill()
        return rows(*given)

    monkeypatch.setattr(on_cluster, "_rows", fill_then_rows)
    with pytest.warns(TfdistrWarning, match=f"(?s)its document could not be written.*{run_dir}"):
        fit = job("ring", run_dir)
    assert bits(fit) == undisturbed("ring")
    assert not (run_dir / "result.json").exists()
    disk.free()
    assert bits(job("ring", run_dir, resume=True)) == undisturbed("ring")
