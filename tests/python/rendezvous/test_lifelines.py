"""Workers that have met notice at once when the process of one of them ends, and not when it says goodbye."""

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import sockets
from launched import is_there, wait_for
from paths import PROGRAMS

from tfdistr.network.ports import free_ports
from tfdistr.rendezvous import lifelines
from tfdistr.rendezvous.lifelines import Lifelines

pytestmark = pytest.mark.timeout(60)
PROGRAM = PROGRAMS / "lifelines.py"


class Worker:
    """A process that has met its peers, and the lines that it says."""

    def __init__(self, tasks: dict[str, str], own: str, serves: bool, heartbeat: float | None) -> None:
        given = {"tasks": tasks, "own": own, "serves": serves, "heartbeat_timeout": heartbeat}
        command = [sys.executable, str(PROGRAM), json.dumps(given)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self.port = int(tasks[own].rpartition(":")[2])
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.strip())

    def says(self, seconds: float = 30) -> str | None:
        with contextlib.suppress(queue.Empty):
            return self._lines.get(timeout=seconds)
        return None

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()


@contextlib.contextmanager
def workers(count: int, serves: bool = True, heartbeat: float | None = None) -> Iterator[list[Worker]]:
    tasks = {f"worker {i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(count))}
    made = [Worker(tasks, own, serves, heartbeat) for own in tasks]
    try:
        assert [worker.says() for worker in made] == ["together"] * count
        yield made
    finally:
        for worker in made:
            with contextlib.suppress(ProcessLookupError):  # all have ended
                os.killpg(worker.process.pid, signal.SIGKILL)  # and what it has forked
            worker.process.communicate()


@pytest.mark.parametrize(("count", "who"), [(2, 0), (2, 1), (3, 0), (3, 2), (5, 3)])
def test_all_others_hear_of_a_process_that_is_killed(count, who):
    with workers(count) as made:
        made[who].process.kill()
        others = [worker for worker in made if worker is not made[who]]
        assert [worker.says(3) for worker in others] == [f"lost worker {who}"] * (count - 1)
        assert [worker.says(0.2) for worker in others] == [None] * (count - 1)


@pytest.mark.parametrize("who", [0, 2])
def test_a_process_that_is_stopped_is_lost(who):
    with workers(3, heartbeat=2) as made:
        os.kill(made[who].process.pid, signal.SIGSTOP)
        others = [worker for worker in made if worker is not made[who]]
        assert [worker.says(10) for worker in others] == [f"no heartbeat of worker {who}"] * 2


def test_a_process_that_keeps_pythons_lock_is_not_lost():
    with workers(3, heartbeat=2) as made:
        for worker in made[:2]:
            worker.tell("busy")
        assert [worker.says(10) for worker in made[:2]] == ["was busy"] * 2
        assert [worker.says(3) for worker in made] == [None] * 3


@pytest.mark.parametrize("how", ["kill", "goodbye"])
def test_what_sends_the_heartbeats_ends_with_its_process(how):
    with workers(2, heartbeat=2) as made:
        beside = {worker.process.pid: sockets.descendants(worker.process.pid) for worker in made}
        assert all(len(pids) == 2 for pids in beside.values())
        for worker in made:
            worker.process.kill() if how == "kill" else worker.tell("goodbye")
        beating = [pid for own, pids in beside.items() for pid in pids - {own}]
        assert wait_for(lambda: not any(map(is_there, beating)), 5)


def test_a_stranger_can_make_no_connection_to_workers_that_have_met():
    with workers(3, serves=False) as made:
        assert sockets.listening({worker.process.pid for worker in made}) == {}
        for worker in made:
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", worker.port), 5)
        assert [worker.process.poll() for worker in made] == [None] * 3


def test_a_process_that_has_said_goodbye_is_not_lost():
    with workers(3) as made:
        made[1].tell("goodbye")
        assert made[1].says() == "left"
        made[1].process.kill()
        assert [made[i].says(1) for i in (0, 2)] == [None, None]
        made[2].process.kill()
        assert made[0].says(3) == "lost worker 2"


def test_what_comes_after_the_goodbye_of_the_leader_is_no_loss():
    with workers(3) as made:
        made[0].tell("goodbye")
        assert made[0].says() == "left"
        made[0].process.kill()
        made[1].process.kill()
        assert made[2].says(1) is None


def test_every_peer_hears_the_goodbye_although_the_first_leaves_at_once(monkeypatch):
    def send_slowly(connection: socket.socket, text: str) -> None:
        time.sleep(0.2)
        send(connection, text)

    send = lifelines._send
    monkeypatch.setattr(lifelines, "_send", send_slowly)
    pairs = [socket.socketpair() for _ in range(3)]
    leader = Lifelines({f"worker {i}": own for i, (own, _) in enumerate(pairs, 1)})
    leader.watch(lambda message: pytest.fail(f"{message} is no loss"), str)
    leader.say_goodbye()
    for _, peer in pairs:
        with peer:
            assert peer.recv(100) == b"goodbye\n"


def test_a_process_that_was_forked_does_not_hide_the_end_of_its_parent():
    with workers(3) as made:
        for worker in made[1:]:
            worker.tell("fork")
            assert worker.says() == "forked"
        made[1].process.kill()
        assert [made[i].says(3) for i in (0, 2)] == ["lost worker 1"] * 2


def test_a_process_that_is_halted_is_not_lost():
    with workers(2) as made:
        made[1].process.send_signal(signal.SIGSTOP)
        assert made[0].says(2) is None
        made[1].process.send_signal(signal.SIGCONT)
        assert made[0].says(0.5) is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [(ConnectionResetError(), "worker 1"), (TimeoutError(), None), (OSError("no route to host"), None)],
)
def test_a_network_that_fails_is_no_end_of_a_process(error, expected):
    class Failing(socket.socket):
        def recv(self, *_: int) -> bytes:
            raise error

    here, there = socket.socketpair()
    heard: queue.Queue[str] = queue.Queue()
    with there:
        lifelines = Lifelines({"worker 1": Failing(fileno=here.detach())})
        lifelines.watch(heard.put, str)
        there.send(b"x")
        found = None
        with contextlib.suppress(queue.Empty):
            found = heard.get(timeout=3 if expected else 0.5)
        assert found == expected
        lifelines.say_goodbye()


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([b'failed "worker 2"\n'], "worker 2"),
        ([b'failed "wor', b'ker 2"\n'], "worker 2"),
        ([b'failed "two\\nlines"\n'], "two\nlines"),
        ([b'\xff\n\nfailed "\n', b"x" * 100_000, b'\nfailed "worker 3"\n'], "worker 3"),
        ([b"good", b"bye\n"], None),
    ],
)
def test_what_is_sent_in_pieces_or_makes_no_sense(sent, expected):
    here, there = socket.socketpair()
    heard: queue.Queue[str] = queue.Queue()
    lifelines = Lifelines({"worker 0": here})
    lifelines.watch(heard.put, str)
    with there:
        for part in sent:
            there.sendall(part)
            time.sleep(0.05)
    if expected:
        assert heard.get(timeout=3) == expected
    else:
        with pytest.raises(queue.Empty):
            heard.get(timeout=0.5)
    lifelines.say_goodbye()


def test_a_goodbye_ends_the_thread_and_closes_the_connections():
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "tfdistr-lifelines"]

    here, there = socket.socketpair()
    with there:
        lifelines = Lifelines({"worker 0": here})
        lifelines.watch(lambda message: None, str)
        assert threads()
        lifelines.say_goodbye()
        lifelines.say_goodbye()
        assert there.recv(100) == b"goodbye\n"
        assert there.recv(100) == b""
        assert wait_for(lambda: not threads() and here.fileno() == -1, 5)
    here, there = socket.socketpair()  # one that was not watched
    with there:
        Lifelines({"worker 0": here}).say_goodbye()
        assert there.recv(100) == b"goodbye\n"
        assert here.fileno() == -1
