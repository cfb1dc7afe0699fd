"""Jobs whose run directory is in a store."""

import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import pytest
import stores
from resumed import At, X, Y, bits, breaks, train

import tfdistr
from tfdistr.checkpoint import uploads
from tfdistr.checkpoint.generations import Claim
from tfdistr.checkpoint.object_store import Store
from tfdistr.errors import ArgumentError, CheckpointError, TfdistrWarning
from tfdistr.jobs import restarts
from tfdistr.jobs import run_dir as folders
from tfdistr.jobs.run_dir import open_run_dir

URL = "s3://bucket/run"
MEMORY = "memory://bucket/run"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[stores.S3Server]:
    monkeypatch.setattr(uploads, "WAITS", (0.1, 0.1))
    with stores.s3_server() as made:
        yield made


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """What a run in a folder gives."""
    return bits(train(tmp_path_factory.mktemp("undisturbed") / "run", validation_data=(X, Y)))


def trained(place: object = URL, **given: Any) -> Any:
    return train(place, validation_data=(X, Y), **given)


def kept() -> set[Path]:
    """The folders of jobs that stay when this process ends."""
    return set(Path(tempfile.gettempdir()).glob("tfdistr-????????")) - folders._temporary


def said(caught: pytest.ExceptionInfo[BaseException]) -> list[str]:
    return str(caught.value).splitlines()


def check_left(fit: tfdistr.FitResult, others: list[str]) -> list[str]:
    """Check what a job has left in the store, and return the names of the objects of its generation."""
    store = Store(URL)
    names = [name for name in store.names() if name.startswith("generations/")]
    assert sorted(set(store.names()) - set(names)) == [*others[:-2], "trace.jsonl", *others[-2:]]
    assert len({name.split("/")[1] for name in names}) == 1
    assert [name.rpartition("/")[2] for name in names if name.endswith((".json", ".npz"))] == [
        "job.json", "model.npz", "result.json", "run.json", "training.json",
    ]  # fmt: skip
    marks = [name.rpartition("/")[2][:16] for name in names if name.endswith(".mark")]
    assert marks[-1] == "000004-000000000"  # the one before depends on how fast the uploads are
    assert len(marks) <= 2
    assert len(names) == 5 + 2 * len(marks) + 1
    (result,) = [name for name in names if name.endswith("/result.json")]
    written = json.loads(store.read(result))
    assert (written["run_dir"], written["workers"]) == (URL, fit.workers)
    return names


def test_training_with_a_store_leaves_all_there_and_changes_no_bit(server, undisturbed):
    before = kept()
    fit = trained()
    assert bits(fit) == undisturbed
    assert fit.run_dir == URL
    assert [row["log"] for row in fit.workers] == [None]
    store, names = Store(URL), check_left(fit, [])
    (claim,) = [name for name in names if name.endswith("/writer")]
    result = claim.replace("writer", "result.json")
    for name in names:
        assert b"not-to-be-seen" not in store.read(name)
    assert server.written[0] == f"/bucket/run/{claim}"
    assert server.written[-1] == f"/bucket/run/{result}"
    assert kept() == before


def waits() -> list[keras.callbacks.Callback]:
    """So that each checkpoint is in the store before the next one, and the last one before the end."""

    def wait(*_: object) -> None:
        time.sleep(1)

    return [keras.callbacks.LambdaCallback(on_epoch_begin=wait, on_train_end=wait)]


@pytest.mark.slow(reason="trains on workers, and waits for uploads")
def test_a_job_on_workers_leaves_all_in_the_store(server, monkeypatch):
    strategy = tfdistr.multi_worker_mirrored(communication="ring")
    given = {"cluster": tfdistr.local_cluster(2), "strategy": strategy}
    fit = train(URL, callbacks=waits, **given)
    logs = [f"logs/worker-{index}.log" for index in (0, 1)]
    check_left(fit, [*logs, *(f"workers/{index}/events.jsonl" for index in (0, 1))])
    assert [row["log"] for row in fit.workers] == [f"{URL}/{log}" for log in logs]
    monkeypatch.setattr(restarts, "run_workers", None)
    again = train(URL, **given, resume=True)  # another machine takes the result from the store
    assert bits(again) == bits(fit)
    assert (again.run_dir, again.workers) == (fit.run_dir, fit.workers) == (URL, fit.workers)


def test_a_job_that_was_killed_as_it_began_can_be_called_again(server):
    for name in ("writer", "job.json"):
        Store(URL).write(f"generations/000001-0123456789abcdef/{name}", b"0123 process 1 on host\n")
    trained(epochs=1, resume=True)


def test_a_job_that_was_paused_as_it_began_loses_nothing_of_the_one_that_took_the_run_over(monkeypatch):
    """It wakes between its claim and its documents, with another id for the run."""
    make = Claim.make

    def paused(claim: Claim) -> None:
        monkeypatch.setattr(Claim, "make", make)
        claim.make()
        trained(MEMORY, epochs=3)

    with stores.memory():
        monkeypatch.setattr(Claim, "make", paused)
        with pytest.raises(CheckpointError, match="has taken it over"):
            trained(MEMORY)
        begun: list[int] = []
        fit = trained(MEMORY, resume=True, callbacks=[At(3, lambda: begun.append(3)), At(0, breaks)])
    assert begun == [3]
    assert len(fit.history["loss"]) == 4


def test_a_longer_job_that_is_killed_leaves_the_result_before(server):
    """Its documents are those that count as soon as it has a checkpoint."""
    fit = trained(epochs=2)
    with pytest.raises(RuntimeError, match="the disk is full"):
        trained(resume=True, callbacks=[At(3, breaks)])
    store = Store(URL)
    results = [name for name in store.names() if name.endswith("/result.json")]
    assert max(results).split("/")[1].startswith("000002-")
    assert json.loads(store.read(max(results)))["history"] == fit.history


@pytest.mark.parametrize(
    ("url", "answer", "reason"),
    [
        ("s3://no-such-bucket/run", "serve", "FileNotFoundError: The specified bucket does not exist"),
        (URL, "deny", "PermissionError: Access Denied"),
        (URL, "gone", "EndpointConnectionError: Could not connect to the endpoint URL: "),
    ],
    ids=["no bucket", "not allowed", "unreachable"],
)
def test_a_store_that_cannot_be_used_is_an_error_before_anything_is_computed(server, url, answer, reason):
    before = set(Path(tempfile.gettempdir()).glob("tfdistr-????????"))
    server.answer = lambda method, path: answer
    if answer == "gone":
        server.stop()
    try:
        with pytest.raises(ArgumentError) as caught:
            train(url, make=breaks)
    finally:
        if answer == "gone":
            server.start()
    rule, received, fix = said(caught)
    assert rule == "Cannot access the store of `run_dir`."
    assert received.startswith(f"Received: {url}: {reason}")
    assert answer == "gone" or received == f"Received: {url}: {reason}"
    assert fix == "Fix: Check that the bucket exists, and that the store's library finds its credentials."
    assert set(Path(tempfile.gettempdir()).glob("tfdistr-????????")) == before


def test_the_end_of_a_job_without_its_store_is_an_error_that_loses_nothing(server, undisturbed):
    before = kept()
    with pytest.raises(CheckpointError) as caught:
        trained(callbacks=[At(3, server.stop)])
    server.start()
    (folder,) = kept() - before
    rule, received, fix = said(caught)
    assert rule == "Cannot upload the whole run to its store at the end of the job."
    assert received.startswith(f"Received: {URL}: EndpointConnectionError: Could not connect to the endpoint")
    assert fix == f"Fix: Pass run_dir='{folder}' and resume=True: the whole run is there."
    assert bits(train(folder, validation_data=(X, Y), resume=True)) == undisturbed
    assert bits(trained(resume=True)) == undisturbed
    folders.remove_run_dir(folder)


def test_a_job_that_fails_without_its_store_says_both(server):
    before = kept()

    def fails() -> None:
        server.stop()
        breaks()

    with pytest.raises(RuntimeError, match="the disk is full"), pytest.warns(TfdistrWarning) as warned:
        trained(callbacks=[At(3, fails)])
    server.start()
    (folder,) = kept() - before
    messages = [str(warning.message) for warning in warned]
    assert messages[-1].startswith(
        f"The last files of the run are not in its store: {URL}: EndpointConnectionError: Could not connect"
    )
    assert messages[-1].endswith(f". See {folder}.")
    folders.remove_run_dir(folder)


def test_only_jobs_that_train_take_a_url():
    with pytest.raises(ArgumentError, match=r"Only distributed_fit\(\)") as caught, open_run_dir(URL):
        pass
    assert caught.value.received == f"'{URL}'"
