"""What others send to the ports of workers that meet is ignored, and who is at a wrong address is named."""

import contextlib
import json
import socket
import threading
import time

import pytest
from meeting import GREETING, addresses, connect, in_place_of_leader, message, outcomes, run, started

from tfdistr.errors import ClusterStartError
from tfdistr.network.ports import free_ports
from tfdistr.rendezvous import meeting
from tfdistr.rendezvous.meeting import meet, tell_of
from tfdistr.rendezvous.protocol import MeetingEnd, this_process

pytestmark = pytest.mark.timeout(60)

DEEP = b"[" * 200_000 + b"]" * 200_000 + b"\n"


def test_an_address_of_another_worker_and_what_is_no_worker_are_named():
    with socket.create_server(("", 0)) as silent:
        tasks = addresses(3)
        swapped = tasks | {"worker 0": tasks["worker 1"], "worker 1": tasks["worker 0"]}
        said = run(tasks, 1, 2, of_1={"timeout": 20}, of_2={"tasks": swapped}, timeout=3)
        assert all(f"worker 0 ({tasks['worker 1']}), where worker 1 answers" in text for text in said)
        tasks |= {"worker 0": f"127.0.0.1:{silent.getsockname()[1]}"}
        (said,) = run(tasks, 1, timeout=3)
    expected = ", where something else answers (has the cluster started already?)"
    assert f"worker 0 ({tasks['worker 0']}){expected}" in said


def test_what_is_sent_by_others_is_ignored():
    tasks = addresses(2)

    def disturb() -> None:
        texts = [
            b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b'{"end": 1}\n', b'{"hello": {}}\n', b"\xff" * 2_000_000,
            DEEP, b'{"end": {"kind": 1, "message": [], "received": {}, "fix": null}}\n',
            b'{"end": {"kind": "cluster_start", "message": "Cancelled."}}\n',
        ]  # fmt: skip
        for text in texts:
            with contextlib.suppress(OSError), connect(tasks["worker 0"]) as sent:  # it may hang up
                sent.sendall(text)

    thread = threading.Thread(target=disturb)
    thread.start()
    assert run(tasks, 0, 1, of_1={"wait": 2}) == ["all are there"] * 2
    thread.join()


@pytest.mark.parametrize(
    "hello",
    [
        {"task": "worker 1", "id": "x"},
        {"task": "worker 1", "id": "x", "fields": []},
        {"task": "worker 1", "id": "x", "fields": {"job": ["a"]}},
        {"task": "worker 1", "fields": {}},
    ],
)
def test_a_stranger_does_not_take_the_place_of_a_worker(hello):
    tasks = addresses(2)
    workers = [{"tasks": tasks, "own": "worker 0", "timeout": 20}]
    with started(workers) as (leader,), connect(tasks["worker 0"]) as stranger:  # which stays
        stranger.sendall(json.dumps({"hello": hello}).encode() + b"\n")
        time.sleep(0.5)
        assert run(tasks, 1) == ["all are there"]
        assert outcomes([leader])[0]["said"] == "all are there"


def test_a_connection_that_says_hello_for_ever_is_closed():
    tasks = addresses(2)
    with started([{"tasks": tasks | {"worker 2": "127.0.0.1:1"}, "own": "worker 0", "timeout": 20}]):
        one = connect(tasks["worker 0"])
        hello = json.dumps({"hello": {"task": "worker 1", "id": "x", "fields": {}}}).encode() + b"\n"
        until = time.monotonic() + 10
        with one, one.makefile("rb") as answers, contextlib.suppress(ConnectionError):
            one.sendall(hello * (meeting._LINES + 1))
            while answers.readline():
                assert time.monotonic() < until, "the leader reads on"


def test_what_a_stranger_says_at_the_address_of_the_leader_is_ignored():
    answers = [
        [message(GREETING | {"waits": 5})],
        [message(GREETING), message(5)],
        [message(GREETING), message({"end": {}})],
        [message(GREETING), message({"waits": [["worker 1"]]})],
        [message(GREETING), DEEP],
        [message(GREETING), message({}), message({"go": True})],
    ]
    seen: list[int] = []

    def answer(one: socket.socket) -> None:
        lines = answers[len(seen)]
        one.sendall(b"".join(lines))
        while one.recv(4096):
            pass
        seen.append(len(lines))

    with in_place_of_leader(answer) as tasks:
        meet(tasks, "worker 1", {}, 10).close()
    assert seen == [1, 2, 2, 2, 2, 3]


def test_many_silent_connections_are_closed_and_others_meet_beside_them():
    tasks = addresses(2)
    with (
        started([{"tasks": tasks, "own": "worker 0", "timeout": 40}]) as (leader,),
        contextlib.ExitStack() as stack,
    ):
        silent = [stack.enter_context(connect(tasks["worker 0"], 20)) for _ in range(400)]
        answered = [bool(one.recv(1 << 12)) for one in silent]
        assert sum(answered) == len(tasks) + meeting._MORE
        assert run(tasks, 1, timeout=30) == ["all are there"]  # when the first ones have been closed
        assert outcomes([leader])[0]["said"] == "all are there"


def test_a_text_of_a_stranger_is_cut_and_has_no_control_characters():
    text = "\x1b[31m" + "x" * 100_000
    end = MeetingEnd.heard(dict.fromkeys(("kind", "message", "received", "fix"), text))
    assert end.message == "\\x1b[31m" + "x" * (4000 - 8) + "..."
    assert len(str(end.error())) < 13_000


def test_an_error_of_a_peer_is_marked_with_its_name():
    tasks = addresses(2)
    fields = [{"fields": {"version of TensorFlow": version}} for version in ("2.21.0", "2.20.0")]
    each = [{"tasks": tasks, "own": f"worker {i}", "timeout": 20} | fields[i] for i in range(2)]
    with started(each) as workers:
        ends = outcomes(workers)
    assert [end["by"] for end in ends] == [None, f"Worker 0 ({tasks['worker 0']})"]
    assert ends[0]["said"] == ends[1]["said"]


def test_an_error_of_a_process_that_has_not_joined_is_marked_with_its_machine():
    tasks = addresses(2)
    with started([{"tasks": tasks, "own": "worker 0", "timeout": 20}]) as workers:
        tell_of(ClusterStartError("A rule.\nFix: a trap", received='a "value"', fix="Do it."), tasks).join()
        text = workers[0].communicate(timeout=30)[0]
    assert json.loads(text)["said"].splitlines() == [
        'ClusterStartError: A process at 127.0.0.1 reported: "A rule.',
        '  Fix: a trap"',
        f'Received: "a "value", in {this_process()}"',
        'Fix: "Do it."',
    ]


def test_what_another_worker_differs_in_has_no_control_characters():
    tasks = addresses(2)
    bad = {"fields": {"job": "\x1b[31m" + "x" * 9000}}
    for said in run(tasks, 0, 1, of_0={"fields": {"job": "a"}}, of_1=bad):
        assert said.splitlines()[1].startswith("Received: job: a on worker 0, \\x1b[31mxxx")
        assert len(said) < 5000


def test_a_process_that_is_no_task_is_named_as_it_calls_itself():
    greeting = message(GREETING | {"task": "fine.\x1b[1m Run this"})
    with in_place_of_leader(lambda one: one.sendall(greeting)) as tasks:
        (said,) = run(tasks, 1, timeout=3)
    assert ', where a process that calls itself "fine.\\x1b[1m Run this" answers' in said


def test_a_large_cluster_needs_few_threads_and_its_error_is_short(monkeypatch):
    """The names of 2,000 hosts, none of which resolves; a lookup takes a moment."""
    # Not all threads of this process: other tests may have some, and one that has looked up ends a bit later.
    looking, most = set(), 0

    def look(host, port, *arguments, **options):
        nonlocal most
        if not options.get("flags"):
            looking.add(threading.get_ident())
            most = max(most, len(looking))
            time.sleep(0.005)
            looking.discard(threading.get_ident())
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    (port,) = free_ports(1)
    tasks = {"worker 0": f"127.0.0.1:{port}"} | {f"worker {i}": f"host-{i}:2222" for i in range(1, 2000)}
    here = socket.getaddrinfo

    def local_or_slow(host, *arguments, **options):
        return (here if host in ("127.0.0.1", "") else look)(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", local_or_slow)
    with pytest.raises(ClusterStartError) as caught:
        meet(tasks, "worker 0", {}, 3)
    assert 1 < most <= 32
    assert "worker 1 (host-1:2222), whose name does not resolve; " in str(caught.value)
    assert "; and 1991 more\n" in str(caught.value)
    assert len(str(caught.value)) < 1500
