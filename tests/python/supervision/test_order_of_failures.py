"""The first failure of a job is blamed, however the clocks of its hosts are set."""

import json
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfdistr.clusters.cluster import ProcessRole
from tfdistr.clusters.worker_process import Worker
from tfdistr.errors import WorkerFailedError
from tfdistr.supervision import supervisor
from tfdistr.supervision.events import EventReader, EventWriter, HostClocks, events_path
from tfdistr.supervision.failures import Failure, FailureKind, root_cause
from tfdistr.supervision.supervisor import run_workers

HOUR = 3600.0
CLOCKS = pytest.mark.parametrize("ahead", [-HOUR, HOUR], ids=["behind", "ahead"])
ERROR = {"error_type": "ValueError", "message": "bad", "traceback": None, "language": "python"}
Actions = dict[int, Callable[["Host"], object]]


class Host(Worker):
    """A worker on a host with its own clock. It does something each time that the launcher looks."""

    is_stopped = False

    def __init__(self, index: int, run_dir: Path, ahead: float, actions: Actions) -> None:
        super().__init__(index, f"host{index}", run_dir)
        self.pid, self.looks = 1, 0
        self._file, self._ahead, self._actions = events_path(run_dir, index), ahead, actions
        self._file.parent.mkdir(parents=True, exist_ok=True)

    def say(self, kind: str, ago: float = 0.0, **fields: Any) -> None:
        clock = {"name": self.host, "seconds": time.monotonic() + 7 * self._ahead - ago}
        event = {"event": kind, "time": time.time() + self._ahead - ago, "clock": clock, **fields}
        with self._file.open("a") as file:
            file.write(json.dumps(event) + "\n")

    def fail(self, *, peer: bool = False, ago: float = 0.0) -> None:
        self.say("failed", ago, peer=peer, **ERROR)

    def end(self, code: int = 1) -> None:
        self.exit_code = code

    def poll(self) -> int | None:
        self.looks += 1
        self._actions.get(self.looks, lambda host: None)(self)
        return self.exit_code

    def launch_error(self) -> None:
        return None

    def signal_group(self, number: signal.Signals) -> None:
        self.exit_code = self.exit_code or -number

    def reap(self) -> None:
        self.signal_group(signal.SIGKILL)


def blamed(folder: Path, ahead: tuple[float, ...], *actions: Actions) -> WorkerFailedError:
    """Run hosts whose clocks are so far ahead, and return the error of the job."""
    hosts = [Host(i, folder, each, what) for i, (each, what) in enumerate(zip(ahead, actions, strict=True))]
    with pytest.raises(WorkerFailedError) as caught:
        run_workers(cluster_of(hosts), [], folder)
    return caught.value


def cluster_of(hosts: Sequence[Host]) -> Any:
    """The cluster that starts them."""
    roles = [ProcessRole(f"Worker {i} of {len(hosts)}", f"worker {i}") for i in range(len(hosts))]
    return SimpleNamespace(
        workers=len(hosts), roles=roles, follow=False, start_timeout=60.0, start=lambda *_: hosts
    )


@CLOCKS
def test_the_failure_that_arrives_first_is_blamed(tmp_path: Path, ahead: float) -> None:
    later: Actions = {1: lambda h: h.say("started", pid=1, host=h.host), 4: Host.fail, 9: Host.end}
    first: Actions = {1: lambda h: h.say("started", pid=1, host=h.host), 2: Host.fail, 9: Host.end}
    assert blamed(tmp_path / "0", (ahead, 0.0), later, first).worker == 1
    assert blamed(tmp_path / "1", (ahead, 0.0), first, later).worker == 0


@CLOCKS
def test_a_worker_that_was_killed_first_is_blamed(tmp_path: Path, ahead: float) -> None:
    """The launcher notes the end by its own clock, the other worker reports by its clock."""
    killed: Actions = {2: lambda h: h.end(-signal.SIGKILL)}
    later: Actions = {3: Host.fail, 4: Host.end}
    assert blamed(tmp_path / "0", (0.0, ahead), killed, later).worker == 0
    assert blamed(tmp_path / "1", (ahead, 0.0), later, killed).worker == 1


@CLOCKS
def test_a_report_before_a_kill_is_blamed(tmp_path: Path, ahead: float) -> None:
    first: Actions = {2: Host.fail, 6: Host.end}
    killed: Actions = {4: lambda h: h.end(-signal.SIGKILL)}
    assert blamed(tmp_path / "0", (ahead, 0.0), first, killed).worker == 0
    assert blamed(tmp_path / "1", (0.0, ahead), killed, first).worker == 1


@CLOCKS
@pytest.mark.parametrize("own", ["reported", "exit", "killed"])
def test_a_worker_that_lost_a_peer_is_never_blamed_for_the_failure_of_the_peer(
    tmp_path: Path, ahead: float, own: str
) -> None:
    ends: dict[str, Actions] = {
        "reported": {5: Host.fail, 6: Host.end},
        "exit": {6: lambda h: h.end(3)},
        "killed": {6: lambda h: h.end(-signal.SIGKILL)},
    }
    lost: Actions = {2: lambda h: h.fail(peer=True), 3: Host.end}
    assert blamed(tmp_path / "0", (ahead, 0.0), lost, ends[own]).worker == 1
    assert blamed(tmp_path / "1", (0.0, ahead), ends[own], lost).worker == 0


def test_a_report_that_comes_after_the_exit_status_still_says_that_a_peer_was_lost(tmp_path: Path) -> None:
    """The status comes by ssh, the report by a shared folder."""
    lost: Actions = {2: Host.end, 4: lambda h: h.fail(peer=True)}
    error = blamed(tmp_path, (0.0, 0.0), lost, {6: lambda h: h.end(3)})
    assert error.worker == 1
    assert [status.exit_code for status in error.workers] == [1, 3]


@CLOCKS
def test_failures_that_arrive_together_are_in_the_order_of_their_hosts_clocks(
    tmp_path: Path, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "POLL", 0.3)

    def at(ago: float) -> Actions:
        return {1: lambda h: h.say("started"), 2: lambda h: h.say("ready"), 3: lambda h: h.fail(ago=ago),
                4: Host.end}  # fmt: skip

    for number, (first, second) in enumerate([(0.2, 0.05), (0.05, 0.2)]):
        error = blamed(tmp_path / str(number), (ahead, -ahead), at(first), at(second))
        assert error.worker == number


@CLOCKS
def test_events_are_given_in_the_order_in_which_they_happened(
    tmp_path: Path, ahead: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = EventReader(tmp_path, 2)
    hosts = [Host(0, tmp_path, ahead, {}), Host(1, tmp_path, 0.0, {})]
    for host in hosts:
        host.say("started")
    assert len(reader.poll()) == 2
    for host, ago in ((hosts[0], 5.0), (hosts[1], 3.0), (hosts[0], 1.0), (hosts[1], 0.0)):
        host.say("note", ago=ago, message=str(ago))
    events = reader.poll()
    assert [event["message"] for event in events] == ["5.0", "3.0", "1.0", "0.0"]
    assert not any("clock" in event for event in events)


def test_a_clock_that_is_set_back_does_not_change_the_order_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = EventWriter(tmp_path, 0)
    writer.write("epoch_begin", epoch=0)
    monkeypatch.setattr(time, "time", lambda: 1000.0)
    writer.write("epoch_end", epoch=0, metrics={}, seconds=1.0)
    assert [e["event"] for e in EventReader(tmp_path, 1).poll()] == ["epoch_begin", "epoch_end"]


@pytest.mark.parametrize("clock", [None, 7, {"name": "a"}, {"name": "a", "seconds": "?"}])
def test_an_event_without_a_readable_clock_counts_as_of_its_arrival(tmp_path: Path, clock: object) -> None:
    path = events_path(tmp_path, 0)
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"event": "ready", "time": 1.0, "clock": clock}) + "\n")
    assert [event["event"] for event in EventReader(tmp_path, 1).poll()] == ["ready"]


def test_the_shortest_delay_says_how_far_a_clock_is_apart() -> None:
    clocks = HostClocks()
    clocks.observe("a", 100.0, now=2.0)
    clocks.observe("a", 101.0, now=1.5)
    clocks.observe("a", 102.0, now=9.0)
    assert [clocks.here("a", reading) for reading in (100.0, 101.0, 102.0)] == [0.5, 1.5, 2.5]


def test_the_kind_of_a_failure_counts_before_its_order() -> None:
    failures = [Failure(0, 0, FailureKind.PEER), Failure(1, 1, FailureKind.EXIT),
                Failure(2, 3, FailureKind.OWN), Failure(3, 2, FailureKind.OWN)]  # fmt: skip
    assert root_cause(failures).worker == 3
    assert root_cause(failures[:3]).worker == 2
    assert root_cause(failures[:2]).worker == 1


class Remote(Host):
    """A worker whose heartbeats are read when the launcher looks."""

    heard = 0.0
    silent_for = property(lambda self: time.monotonic() - self.heard)  # type: ignore[assignment]

    def poll(self) -> int | None:
        self.heard = time.monotonic()
        return super().poll()


def test_a_worker_is_not_silent_while_a_function_of_the_session_runs(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(supervisor, "HEARTBEAT", 0.2)

    def ask(host: Host) -> None:
        host.say("in_session", epoch=0, metrics={})

    def done(host: Host) -> None:
        host.say("done", seconds=1.0)
        host.end(0)

    hosts = [Remote(i, tmp_path, 0.0, {2: ask, 4: done} if i == 0 else {4: done}) for i in range(2)]
    called = []

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "in_session":
            called.append(event["epoch"])
            time.sleep(1.0)

    statuses = run_workers(cluster_of(hosts), [], tmp_path, on_event, heartbeat_timeout=0.5)
    assert [status.status for status in statuses] == ["done", "done"]
    assert called == [0]
