"""Before TensorFlow starts, the workers see whether all are there, and alike; if not, all say the same."""

import asyncio
import errno
import json
import os
import signal
import socket
import threading
import time
from typing import Any

import pytest
from meeting import GREETING, START_FIX, addresses, in_place_of_leader, message, outcomes, run, started

from tfdistr.errors import ArgumentError, ClusterStartError
from tfdistr.network.ports import free_ports
from tfdistr.rendezvous import meeting, roles
from tfdistr.rendezvous.meeting import meet, tell_of
from tfdistr.rendezvous.protocol import listening_socket, no_port

pytestmark = pytest.mark.timeout(60)


def test_all_go_on_when_all_are_there_and_their_ports_are_free_again():
    tasks = addresses(4)
    assert run(tasks, 0, 1, 2, 3, of_0={"wait": 1}) == ["all are there"] * 4
    for address in tasks.values():
        with socket.create_server(("", int(address.rpartition(":")[2]))):
            pass


def test_what_a_worker_sends_at_once_is_left_for_the_lifelines(monkeypatch):
    async def drain(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.5)  # a leader that is slow, after it has told the first worker to continue

    monkeypatch.setattr(asyncio.StreamWriter, "drain", drain)
    tasks, met = addresses(3), {}

    def join(own: str) -> None:
        met[own] = meet(tasks, own, {}, 30)
        if own != "worker 0":
            met[own].lines["worker 0"].send("first words")

    threads = [threading.Thread(target=join, args=[own]) for own in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        for lines in met["worker 0"].lines.values():
            assert lines.take() == "first words"
    finally:
        for lifelines in met.values():
            lifelines.close()


def test_a_worker_that_comes_after_one_that_was_killed_takes_its_place():
    tasks = addresses(3)
    each = [{"tasks": tasks, "own": f"worker {i}", "timeout": 20} for i in range(3)]
    with started(each[:2]) as first:
        time.sleep(1)
        first[1].send_signal(signal.SIGKILL)
        first[1].wait()
        with started(each[1:]) as others:
            assert [outcome["said"] for outcome in outcomes([first[0], *others])] == ["all are there"] * 3


@pytest.mark.parametrize("there", [(0, 2), (2,), (1, 2), (0,)])
def test_those_that_are_missing_are_named_exactly_and_alike(there):
    tasks = addresses(3)
    for said in run(tasks, *there, timeout=3):
        rule, received, fix = said.splitlines()
        assert rule == "ClusterStartError: Not all workers of the cluster joined within 3 s."
        who, _, missing = received.partition(": waited for ")
        assert who in [f"Received: worker {i} ({tasks[f'worker {i}']})" for i in there]
        assert sorted(missing.split("; ")) == [
            f"worker {i} ({tasks[f'worker {i}']}), where nobody listens" for i in range(3) if i not in there
        ]
        assert fix == START_FIX


def test_who_has_waited_longest_ends_it_for_all():
    tasks = addresses(3)
    each = [{"tasks": tasks, "own": f"worker {i}", "timeout": (30, 2)[i]} for i in range(2)]
    with started(each) as processes:
        ended = outcomes(processes)
    assert ended[0]["said"] == ended[1]["said"]
    assert f"waited for worker 2 ({tasks['worker 2']}), where nobody listens\n" in ended[0]["said"]
    assert ended[0]["seconds"] < 15


def test_a_leader_hears_why_a_worker_leaves_before_it_has_left():
    heard: list[dict[str, Any]] = []

    def answer(one: socket.socket) -> None:
        one.sendall(message(GREETING))
        heard.extend(json.loads(line) for line in one.makefile())

    with (
        in_place_of_leader(answer) as tasks,
        pytest.raises(ClusterStartError, match="joined within 1 s"),
    ):
        meet(tasks, "worker 1", {}, 1)
    assert [next(iter(said)) for said in heard][:2] == ["hello", "end"]


def test_a_name_that_does_not_resolve_is_named_on_every_worker():
    tasks = addresses(3) | {"worker 2": "no-such-host.invalid:2222"}
    for said in run(tasks, 0, 1, timeout=3):
        assert said.splitlines()[1].endswith(
            "waited for worker 2 (no-such-host.invalid:2222), whose name does not resolve"
        )


def waited_for(said: str) -> list[str]:
    return sorted(said.splitlines()[1].partition(": waited for ")[2].split("; "))


@pytest.mark.parametrize(("there", "absent"), [(0, 1), (1, 0)])
def test_who_is_missing_is_named_beside_a_name_that_does_not_resolve(there, absent):
    tasks = addresses(3) | {"worker 2": "no-such-host.invalid:2222"}
    (said,) = run(tasks, there, timeout=3)
    assert waited_for(said) == [
        f"worker {absent} ({tasks[f'worker {absent}']}), where nobody listens",
        "worker 2 (no-such-host.invalid:2222), whose name does not resolve",
    ]


def test_who_waits_for_another_name_than_the_leader_is_named_too():
    tasks = addresses(4)
    of_0 = {"tasks": tasks | {"worker 3": "no-such-host.invalid:3333"}, "timeout": 4}
    of_1 = {"tasks": tasks | {"worker 2": "no-such-host.invalid:2222"}}
    for said in run(tasks, 0, 1, 2, of_0=of_0, of_1=of_1):
        assert waited_for(said) == [
            f"worker 1 ({tasks['worker 1']}), which waits for worker 2 ({tasks['worker 2']})",
            "worker 3 (no-such-host.invalid:3333), whose name does not resolve",
        ]


@pytest.mark.parametrize(
    ("own", "tasks", "loopback"),
    [
        ("node1:{}", ["node1:{}", "node2:2222"], False),
        ("node1:{}", ["node1:{}", "no-such-host.invalid:2222"], False),
        ("node1:{}", ["node1:{}", "localhost:2222", "127.0.0.1:2222"], True),
        ("127.0.0.1:{}", ["127.0.0.1:{}", "127.0.0.2:2222"], True),
        ("127.0.0.1:{}", ["127.0.0.1:{}", "192.0.2.1:2222"], False),
    ],
)
def test_a_worker_listens_on_loopback_only_where_all_tasks_are_there(monkeypatch, own, tasks, loopback):
    places = {"node1": "127.0.1.1", "node2": "192.0.2.2"}  # as Debian's /etc/hosts has it on node1
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *a, **o: real(places.get(host, host), *a, **o))
    port = free_ports(1)[0]
    listens = asyncio.run(listening_socket(own.format(port), [task.format(port) for task in tasks]))
    with listens:
        host, there = listens.getsockname()[:2]
    assert there == port
    assert host.startswith("127.") if loopback else host in ("::", "0.0.0.0")


@pytest.mark.alone
def test_a_port_that_is_in_use_ends_it_for_all_at_once():
    with socket.create_server(("", 0)) as server:
        tasks = addresses(3) | {"worker 1": f"127.0.0.1:{server.getsockname()[1]}"}
        began = time.monotonic()
        said = run(tasks, 0, 1, 2, timeout=60, of_0={"wait": 2})  # who comes later is told, too
    assert time.monotonic() - began < 10
    received = f"\nReceived: worker 1 ({tasks['worker 1']}): another process listens on its port\n"
    assert [received in one for one in said] == [True] * 3


@pytest.mark.skipif(os.getuid() == 0, reason="root may listen on any port")
def test_a_port_that_is_not_for_this_user():
    with pytest.raises(ClusterStartError, match=r"Permission denied\nFix: Give the worker a port"):
        meet(addresses(1) | {"worker 1": "127.0.0.1:1"}, "worker 1", {}, 5)


@pytest.mark.parametrize(
    ("error", "found", "fix"),
    [
        (errno.EADDRINUSE, "another process listens on its port",
         "Stop the process that uses this task's port, or give the task another address."),
        (errno.EACCES, "Permission denied", "Give the task a port that this user may listen on."),
        (errno.EADDRNOTAVAIL, "Cannot assign requested address",
         "Give the task an address and a port that it can listen on."),
    ],
)  # fmt: skip
def test_why_a_port_cannot_be_had(monkeypatch, error, found, fix):
    reason = OSError(error, os.strerror(error))
    assert no_port(reason) == (found, fix)

    async def refused(*_: Any) -> socket.socket:
        raise reason

    monkeypatch.setattr(meeting, "listening_socket", refused)
    tasks = addresses(1)
    with pytest.raises(ClusterStartError) as caught:
        meet(tasks, "worker 0", {}, 5)
    assert str(caught.value).splitlines() == [
        "Cannot listen on the port of the task's address.",
        f"Received: worker 0 ({tasks['worker 0']}): {found}",
        f"Fix: {fix}",
    ]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_two_processes_with_one_task_are_named(elsewhere):
    tasks = addresses(3)  # of which one does not come: else those that come first may continue
    theirs = tasks | ({"worker 1": addresses(1)["worker 0"]} if elsewhere else {})
    each = [{"tasks": tasks, "own": "worker 1", "timeout": 20}]
    each += [{"tasks": theirs, "own": "worker 1", "timeout": 20, "wait": 1}]
    each += [{"tasks": tasks, "own": "worker 0", "timeout": 20, "wait": 2}]
    with started(each) as processes:
        said = {outcome["said"] for outcome in outcomes(processes)}
        pids = [process.pid for process in processes]
    (text,) = said
    rule, received, fix = text.splitlines()
    assert rule == "ClusterStartError: Two processes have the same task of the cluster."
    assert received.startswith("Received: worker 1 (127.0.0.1:")
    assert all(f"process {pid} on {socket.gethostname()}" in received for pid in pids[:2])
    assert fix == "Fix: Give each process its own task in TF_CONFIG, and stop those of an earlier run."


def test_a_wrong_address_that_nobody_needs_is_noticed():
    tasks = addresses(3)
    wrong = {"tasks": tasks | {"worker 2": "127.0.0.1:9"}}
    said = run(tasks, 0, 1, 2, of_1=wrong)
    received = f"address of worker 2: {tasks['worker 2']} on worker 0 and worker 2, 127.0.0.1:9 on worker 1"
    assert [f"\nReceived: {received}\n" in one for one in said] == [True] * 3


@pytest.mark.alone
def test_an_error_of_the_leader_ends_the_meeting(monkeypatch):
    def fail(*_: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(roles, "mismatch", fail)
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="a bug"):
        meet(addresses(1), "worker 0", {}, 20)
    assert time.monotonic() - began < 10


def test_a_process_that_cannot_join_tells_those_that_wait():
    tasks = addresses(2)
    with started([{"tasks": tasks, "own": "worker 0", "timeout": 15, "wait": 0.5}]) as (process,):
        tell_of(ArgumentError("The index must be there.", received=7, fix="Pass 1."), tasks)
        (outcome,) = outcomes([process])
    assert f"Received: 7, in process {os.getpid()} on {socket.gethostname()}" in outcome["said"].splitlines()


def test_after_an_interrupt_the_port_is_free_in_the_same_session():
    tasks = addresses(2)
    threading.Timer(0.7, signal.raise_signal, [signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt) as kept:
        meet(tasks, "worker 0", {}, 30)
    with pytest.raises(ClusterStartError, match=r"joined within 1 s"):
        meet(tasks, "worker 0", {}, 1)
    assert kept.tb is not None  # as a session keeps the last one


@pytest.mark.alone
def test_an_interrupt_before_there_is_a_loop_ends_it():
    run_of_meeting = meeting._Meeting(addresses(2), "worker 0", {}, 30)
    run_of_meeting.cancel()
    began = time.monotonic()
    run_of_meeting.run()
    assert time.monotonic() - began < 5
    assert run_of_meeting.over.is_set()


def test_it_works_where_a_loop_runs_already():
    async def cell() -> None:
        meet(addresses(1), "worker 0", {}, 5)

    asyncio.run(cell())
