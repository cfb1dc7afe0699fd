"""What the peers of a process hear of it when it joins a cluster by hand."""

from types import SimpleNamespace
from typing import Any

import pytest

from tfdistr.errors import JobMismatchError, JobStoppedError, WorkerFailedError
from tfdistr.jobs.membership import InformedPeers


class Cluster:
    """A strategy of two workers, which notes what it is asked; worker 0 says ``chief``."""

    def __init__(self, index: int = 0, chief: str = "") -> None:
        self.worker_index, self.num_workers, self.tasks = index, 2, {"worker 0": "a:1", "worker 1": "b:1"}
        self.told: list[str] = []
        self.passed_on: list[str] = []
        self.texts: list[str] = []

        def text_of_chief(text: str) -> str:
            self.texts.append(text)
            return chief if index else text

        self.collectives = SimpleNamespace(
            text_of_chief=text_of_chief, heard_failure=lambda: None, pass_on=self.passed_on.append
        )

    def report_failure(self, message: str) -> None:
        self.told.append(message)


def test_a_seed_without_peers():
    assert InformedPeers(SimpleNamespace(collectives=None)).agree(3, uploads=True) == 3


@pytest.mark.parametrize("uploads", [True, False])
def test_all_wait_until_the_chief_has_uploaded(uploads):
    chief = Cluster()
    assert InformedPeers(chief).agree(7, uploads=uploads) == 7
    worker = Cluster(1, chief.texts[0])
    peers = InformedPeers(worker)
    assert peers.agree(9, uploads=False) == 7
    with peers:
        pass
    peers.wait_for_uploads()
    assert len(worker.texts) == 1 + uploads


@pytest.mark.parametrize(
    ("error", "waits", "told"),
    [
        (JobStoppedError("preempted"), True, []),
        (JobMismatchError("other weights"), False, []),
        (
            RuntimeError("the disk is full"),
            False,
            ["tfdistr: failure of worker 0: RuntimeError: the disk is full"],
        ),
        (KeyboardInterrupt(), False, ["tfdistr: failure of worker 0: KeyboardInterrupt"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_a_failure_is_told_before_anything_is_uploaded(error: Any, waits: bool, told: list[str]):
    cluster = Cluster()
    peers = InformedPeers(cluster)
    peers.agree(7, uploads=True)
    with pytest.raises(type(error)) as caught, peers:
        raise error
    assert caught.value is error
    assert cluster.told == told
    peers.wait_for_uploads()
    assert len(cluster.texts) == 1 + waits


def test_a_failure_that_a_peer_has_reported_is_passed_on():
    cluster = Cluster()
    report = "tfdistr: failure of worker 1: ValueError: a fault"
    failed = pytest.raises(WorkerFailedError, match="Worker 1 failed: ValueError: a fault")
    with failed, InformedPeers(cluster):
        raise RuntimeError(f"aborted by: Error reported from /job:worker/task:1: {report}")
    assert (cluster.told, cluster.passed_on) == ([], [report])
