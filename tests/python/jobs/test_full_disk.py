"""A disk that is full, at each moment of a job: a clear error or a finished run, and nothing is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import pytest
from disks import Disk, fill, small_disk_at
from launched import processes_of
from recovered import Attempt, Job, positions
from resumed import bits, train

import tfdistr
from tfdistr.errors import CheckpointError, TfdistrWarning, WorkerFailedError
from tfdistr.jobs import on_cluster

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:The disk of:tfdistr.TfdistrWarning"),
]
RING = {
    "cluster": tfdistr.local_cluster(2), "strategy": tfdistr.multi_worker_mirrored(communication="ring"),
}  # fmt: skip
JOBS = {"here": Job({"epochs": 3}), "ring": Job(RING | {"epochs": 3})}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk_at(tmp_path / "disk", "4m") as mounted:
        yield mounted
        assert not processes_of(mounted.path / "run")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """What each job gives on a disk with room, as it is asked for."""

    class Results(dict[str, list[Any]]):
        def __missing__(self, way: str) -> list[Any]:
            self[way] = JOBS[way].trained(tmp_path_factory.mktemp("undisturbed"))
            return self[way]

    return Results()


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


@pytest.mark.parametrize(
    ("way", "moment", "error", "said", "left"),
    [
        ("here", "start", CheckpointError, "(?s)could not be written.*/run/lock, which needs ", []),
        ("here", "epoch 1", CheckpointError, "(?s)A checkpoint could.*/000002-000000000.checkpoint, which",
         [(1, 0)]),
        ("ring", "epoch 1", WorkerFailedError, "(?s)A checkpoint could.*/000002-000000000.checkpoint, which",
         [(1, 0)]),
        ("ring", "end", WorkerFailedError, "(?s)The trained model could.*/run/model.npz, which needs ",
         [(2, 0), (3, 0)]),
    ],
)  # fmt: skip
def test_a_disk_that_becomes_full_costs_no_run(disk, undisturbed, way, moment, error, said, left):
    def then(run_dir: Path) -> None:
        assert positions(run_dir) == left
        assert not list(run_dir.rglob("*.partial"))
        disk.free()

    if moment == "start":
        disk.fill()
    fails = Attempt(lambda run: [Fills(disk.path, moment)], error, said, then)
    JOBS[way].check(disk.path, undisturbed[way], [fails, Attempt()])


def test_a_result_without_its_document_is_not_lost(disk, undisturbed, monkeypatch):
    run_dir = disk.path / "run"
    rows = on_cluster._rows

    def fill_then_rows(*given: Any) -> Any:
        disk.fill()
        return rows(*given)

    monkeypatch.setattr(on_cluster, "_rows", fill_then_rows)
    with pytest.warns(TfdistrWarning, match=f"(?s)its document could not be written.*{run_dir}"):
        fit = train(run_dir, **JOBS["ring"].given)
    assert bits(fit) == undisturbed["ring"]
    assert not (run_dir / "result.json").exists()
    disk.free()
    assert bits(train(run_dir, **JOBS["ring"].given, resume=True)) == undisturbed["ring"]
