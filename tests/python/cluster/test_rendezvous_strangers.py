"""What others send to the ports of workers that meet is ignored, and who is at a wrong address is named."""

from __future__ import annotations

import json
import socket
import threading
import time

import pytest
from meeting import addresses, outcomes, run, started

from tfdistr.cluster.rendezvous import meet

pytestmark = pytest.mark.timeout(60)

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
    port = int(tasks["worker 0"].rpartition(":")[2])

    def disturb() -> None:
        texts = [b"GET / HTTP/1.1\r\n\r\n", b"[]\n", b'{"end": 1}\n', b'{"hello": {}}\n', b"\xff" * 2_000_000]
        for text in texts:
            for _ in range(200):
                try:
                    with socket.create_connection(("127.0.0.1", port), 5) as sent:
                        sent.sendall(text)
                    break
                except ConnectionRefusedError:
                    time.sleep(0.02)
                except OSError:
                    break  # it hung up

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
    with started([{"tasks": tasks, "own": "worker 0", "timeout": 20}]) as (leader,):
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                stranger = socket.create_connection(("127.0.0.1", int(tasks["worker 0"].rpartition(":")[2])))
                break
            except ConnectionRefusedError:
                time.sleep(0.02)
        with stranger:  # it stays
            stranger.sendall(json.dumps({"hello": hello}).encode() + b"\n")
            time.sleep(0.5)
            assert run(tasks, 1) == ["all are there"]
            assert outcomes([leader])[0]["said"] == "all are there"


def test_what_a_stranger_says_at_the_address_of_the_leader_is_ignored():
    greeting = {"task": "worker 0", "id": "x", "waits": [], "time": 0.0}
    answers = [
        [greeting | {"waits": 5}],
        [greeting, 5],
        [greeting, {"end": {}}],
        [greeting, {}, {"go": True}],
    ]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for lines in answers:
                with server.accept()[0] as one:
                    one.sendall(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
                    while one.recv(4096):
                        pass
                seen.append(len(lines))

        seen: list[int] = []
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        tasks = addresses(2) | {"worker 0": f"127.0.0.1:{server.getsockname()[1]}"}
        meet(tasks, "worker 1", {}, 10)
        thread.join(5)
    assert seen == [1, 2, 2, 3]
