"""Jobs on workers whose run directory is in a store: started by a launcher."""

import json
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import keras
import pytest
import stores
from resumed import bits, train

import tfdistr
from tfdistr.checkpoint.object_store import Store
from tfdistr.clusters.local.cluster import local_cluster
from tfdistr.errors import ArgumentError
from tfdistr.jobs import on_cluster

URL = "s3://bucket/run"


@pytest.fixture
def server() -> Iterator[stores.S3Server]:
    with stores.s3_server() as made:
        yield made


def on_workers(place: object, **given: Any) -> tfdistr.FitResult:
    return train(
        place, cluster=local_cluster(2), strategy=tfdistr.multi_worker_mirrored(communication="ring"), **given
    )


def waits() -> list[keras.callbacks.Callback]:
    """So that each checkpoint is in the store before the next one, and the last one before the end."""

    def wait(*_: object) -> None:
        time.sleep(1)

    return [keras.callbacks.LambdaCallback(on_epoch_begin=wait, on_train_end=wait)]


class Undisturbed(NamedTuple):
    """A job on workers, and what it left."""

    fit: tfdistr.FitResult
    names: list[str]
    written: list[str]
    events: list[str]
    result: dict[str, Any]
    again: tfdistr.FitResult


@pytest.fixture(scope="module")
def undisturbed() -> Undisturbed:
    with stores.s3_server() as server, pytest.MonkeyPatch.context() as patch:
        fit = on_workers(URL, callbacks=waits)
        written, store = list(server.written), Store(URL)
        patch.setattr(on_cluster, "run_workers", None)
        result = json.loads(store.read("result.json"))
        lines = store.read("workers/0/events.jsonl").splitlines()
        events = [json.loads(line)["event"] for line in lines]
        return Undisturbed(fit, store.names(), written, events, result, on_workers(URL, resume=True))


@pytest.mark.slow(reason="trains on workers, and waits for uploads")
def test_a_job_on_workers_leaves_all_in_the_store(undisturbed):
    fit, names, again = undisturbed.fit, undisturbed.names, undisturbed.again
    assert [name for name in names if not name.startswith("generations/")] == [
        "job.json", "logs/worker-0.log", "logs/worker-1.log", "model.npz", "result.json", "run.json",
        "training.json", "workers/0/events.jsonl", "workers/1/events.jsonl",
    ]  # fmt: skip
    marks = [name.rpartition("/")[2][:16] for name in names if name.endswith(".mark")]
    assert marks[-1] == "000004-000000000"  # the one before depends on how fast the uploads are
    assert fit.run_dir == URL
    assert [row["log"] for row in fit.workers] == [f"{URL}/logs/worker-{index}.log" for index in (0, 1)]
    assert undisturbed.result["workers"] == fit.workers
    # Another machine takes the result from the store.
    assert bits(again) == bits(fit)
    assert (again.run_dir, again.workers) == (fit.run_dir, fit.workers)


@pytest.mark.slow(reason="trains on workers, and waits for uploads")
def test_each_checkpoint_brings_the_logs_so_far(undisturbed):
    written = undisturbed.written
    marks = [place for place, path in enumerate(written) if path.endswith(".mark")]
    for name in ("logs/worker-0.log", "workers/1/events.jsonl"):
        assert marks[0] < written.index(f"/bucket/run/{name}") < marks[-1], written
    last = max(place for place, event in enumerate(undisturbed.events) if event == "checkpoint")
    assert "done" in undisturbed.events[last:], "what follows the last checkpoint"


def test_no_worker_starts_if_the_store_cannot_be_used(server, monkeypatch):
    monkeypatch.setattr(on_cluster, "run_workers", None)
    server.answer = lambda method, path: "deny" if method == "PUT" else "serve"
    with pytest.raises(ArgumentError) as caught:
        on_workers(URL)
    assert str(caught.value).splitlines()[:2] == [
        "Cannot access the store of `run_dir`.",
        f"Received: {URL}: PermissionError: Access Denied",
    ]
