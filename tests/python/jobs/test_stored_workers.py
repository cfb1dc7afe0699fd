"""Jobs on workers whose run directory is in a store: started by a launcher."""

import json
import time
from typing import Any

import keras
import pytest
import stores
from resumed import bits, train

import tfdistr
from tfdistr.checkpoint.object_store import Store
from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.jobs import restarts

URL = "s3://bucket/run"


def on_workers(place: object, **given: Any) -> tfdistr.FitResult:
    return train(
        place, cluster=local_cluster(2), strategy=tfdistr.multi_worker_mirrored(communication="ring"), **given
    )


def waits() -> list[keras.callbacks.Callback]:
    """So that each checkpoint is in the store before the next one, and the last one before the end."""

    def wait(*_: object) -> None:
        time.sleep(1)

    return [keras.callbacks.LambdaCallback(on_epoch_begin=wait, on_train_end=wait)]


@pytest.mark.slow(reason="trains on workers, and waits for uploads")
def test_a_job_on_workers_leaves_all_in_the_store(monkeypatch):
    with stores.s3_server():
        fit = on_workers(URL, callbacks=waits)
        store = Store(URL)
        names = store.names()
        (described,) = [name for name in names if name.endswith("/result.json")]
        result = json.loads(store.read(described))
        monkeypatch.setattr(restarts, "run_workers", None)
        again = on_workers(URL, resume=True)
    assert [name for name in names if not name.startswith("generations/")] == [
        "logs/worker-0.log", "logs/worker-1.log", "trace.jsonl", "workers/0/events.jsonl",
        "workers/1/events.jsonl",
    ]  # fmt: skip
    assert [name.rpartition("/")[2] for name in names if name.endswith((".json", ".npz"))] == [
        "job.json", "model.npz", "result.json", "run.json", "training.json",
    ]  # fmt: skip
    marks = [name.rpartition("/")[2][:16] for name in names if name.endswith(".mark")]
    assert marks[-1] == "000004-000000000"  # the one before depends on how fast the uploads are
    assert fit.run_dir == URL
    assert [row["log"] for row in fit.workers] == [f"{URL}/logs/worker-{index}.log" for index in (0, 1)]
    assert result["workers"] == fit.workers
    # Another machine takes the result from the store.
    assert bits(again) == bits(fit)
    assert (again.run_dir, again.workers) == (fit.run_dir, fit.workers)
