"""How a fork server serves, and how it ends."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sockets
from forked import server_of, states
from launched import SMALL_SERVER, command, is_there, wait_for

import tfdistr
from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.errors import WorkerFailedError
from tfdistr.fork_server import servers
from tfdistr.fork_server.client import Forked, Refused
from tfdistr.network.loopback import Loopback
from tfdistr.supervision.events import EventReader
from tfdistr.supervision.supervisor import run_workers

pytestmark = pytest.mark.timeout(180)


@pytest.mark.usefixtures("_small_servers")
def test_a_server_that_dies_takes_its_job_along_and_is_named(tmp_path: Path) -> None:
    def kill_server(event: dict[str, Any]) -> None:
        if event["event"] == "ready" and event["worker"] == 1:
            stat = Path(f"/proc/{started[1]}/stat").read_text()
            os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
        if event["event"] == "started":
            started[event["worker"]] = event["pid"]

    started: dict[int, int] = {}
    with pytest.raises(WorkerFailedError) as caught:
        run_workers(local_cluster(2), command("wait"), tmp_path, kill_server)
    error = caught.value
    place = f"Worker {error.worker} on {socket.gethostname()}"
    assert str(error).startswith(f"{place} was lost with its fork server, which exited before")
    assert wait_for(lambda: not any(is_there(pid) for pid in started.values()), 10)
    # The next job has another one.
    assert server_of(states(tmp_path / "next", 1)[0]["parent"])


@pytest.mark.usefixtures("_small_servers")
def test_stop_warm_workers(tmp_path: Path) -> None:
    first = states(tmp_path / "first", 1)[0]["parent"]
    folder = Path(Path(f"/proc/{first}/cmdline").read_bytes().split(b"\0")[4].decode())
    assert folder.stat().st_mode & 0o777 == 0o700
    tfdistr.stop_warm_workers()
    assert not is_there(first)
    assert not folder.exists()
    second = states(tmp_path / "second", 1)[0]["parent"]
    assert second != first
    assert server_of(second)


#: A session that describes a cluster, says when its server has come, and waits.
SESSION = """
import json, sys, time
from pathlib import Path
from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.supervision.supervisor import run_workers
from tfdistr.fork_server import servers
if __name__ == "__main__":
    servers._PYTHON = tuple(json.loads(sys.argv.pop(1)))
    local_cluster(1)
    (server,) = servers._servers._present.values()
    print(server._process.pid, server._folder, flush=True)
    if sys.argv[1] == "run":
        run_workers(local_cluster(1), sys.argv[3:], sys.argv[2])
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("busy", [False, True])
def test_a_server_ends_with_its_session(tmp_path: Path, number: signal.Signals, busy: bool) -> None:
    arguments = ["run", str(tmp_path), *command("wait_with_grandchild")] if busy else ["describe"]
    session = [sys.executable, "-c", SESSION, json.dumps(SMALL_SERVER if busy else servers._PYTHON)]
    process = subprocess.Popen([*session, *arguments], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL)  # fmt: skip
    try:
        assert process.stdout is not None
        pid, folder = process.stdout.readline().split()
        pids = {int(pid)}
        if busy:
            reader = EventReader(tmp_path, 1)

            def all_there() -> bool:
                pids.update(event["pid"] for event in reader.poll() if "pid" in event)
                return len(pids) == 3

            assert wait_for(all_there, 120)
        process.send_signal(number)
        process.wait(20)
        assert wait_for(lambda: not any(is_there(pid) for pid in pids), 10)
        assert wait_for(lambda: not Path(folder).exists(), 5)
    finally:
        process.kill()
        process.communicate()


#: A server with little to import, which ends soon.
SERVER = """
import sys
import tempfile
from tfdistr.fork_server import server
server._MODULES = ()
server.IDLE = float(sys.argv[3].strip() or 60)
server.main()
"""


@contextlib.contextmanager
def small_server(
    folder: Path, idle: float = 60.0, program: str = SERVER
) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(folder), str(listener.fileno()), str(idle)],
            stdin=subprocess.PIPE, pass_fds=[listener.fileno()],
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_server_that_nobody_asks_ends(tmp_path: Path) -> None:
    with small_server(tmp_path / "s", idle=1.0) as process:
        assert process.wait(60) == 0
    assert not (tmp_path / "s").exists()


def test_a_fork_that_is_told_to_end_at_once_ends_alone(tmp_path: Path) -> None:
    forks_slowly = "import os, time\nos.register_at_fork(after_in_child=lambda: time.sleep(0.5))\n"
    (tmp_path / "wait.py").write_text("import time\ntime.sleep(60)\n")
    with (
        small_server(tmp_path / "s", program=forks_slowly + SERVER) as server,
        open(os.devnull, "wb") as output,
    ):
        first, second = (
            Forked(
                str(tmp_path / "s" / "socket"), [str(tmp_path / "wait.py")], env=dict(os.environ),
                output=output.fileno(),
            )
            for _ in range(2)
        )  # fmt: skip
        os.kill(second.pid, signal.SIGTERM)
        assert list(second.changes()) == [-signal.SIGTERM]
        assert first.poll() is None
        assert server.poll() is None
        assert (tmp_path / "s" / "socket").exists()


@pytest.mark.usefixtures("_small_servers")
def test_a_server_listens_on_no_port(tmp_path: Path) -> None:
    seen: list[tuple[dict[str, int], int]] = []

    def look(event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            (server,) = {pid for pid in sockets.descendants(os.getpid()) if server_of(pid)} - left
            # Its arguments: the folder of its socket, and the descriptor of the socket.
            folder = Path(Path(f"/proc/{server}/cmdline").read_text().split("\0")[-4])
            assert (folder / "socket").is_socket()
            seen.append((sockets.listening({server}), folder.stat().st_mode & 0o777))

    left = {pid for pid in sockets.descendants(os.getpid()) if server_of(pid)}
    # Libraries read this variable, so a new server is started.
    run_workers(local_cluster(1, env={"LD_BIND_NOW": "1"}), command("finish"), tmp_path, look)
    assert seen == [({}, 0o700)]


def test_only_its_user_gets_forks(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("to ask as another user needs root")
    with small_server(tmp_path / "s"), open(tmp_path / "out", "wb") as output:
        path = str(tmp_path / "s" / "socket")
        argv = ["-m", "this"]
        assert list(Forked(path, argv, env=dict(os.environ), output=output.fileno()).changes()) == [0]
        for opened in (tmp_path / "s", tmp_path, *tmp_path.parents[:-2]):
            opened.chmod(0o755)
        os.chmod(path, 0o777)
        ask = (
            "import os, sys; sys.path.insert(0, sys.argv[1]); import client\n"
            "client.user_of = lambda connection: os.geteuid()\n"  # it would refuse the server first
            "try: client.Forked(sys.argv[2], ['-m', 'this'], env={}, output=1); print('forked')\n"
            "except client.Refused as error: print(error)"
        )
        for name in ("fork_server/client.py", "utils/log_tail.py", "utils/processes.py"):
            copied = tmp_path / name  # where another user can read it
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_text((Path(tfdistr.__file__).parent / name).read_text())
        ended = subprocess.run(
            ["/usr/bin/python3", "-I", "-c", ask, f"{tmp_path}/fork_server", path], user=65534,
            capture_output=True, text=True, timeout=60, cwd="/",
        )  # fmt: skip
        refusals = ("it ended", "it does not answer ([Errno 32] Broken pipe)")
        assert ended.stdout.strip() in refusals, ended.stderr


def fork_this(folder: Path) -> list[bool | int]:
    """The changes of a fork that runs a short module."""
    with open(os.devnull, "wb") as output:
        path = str(folder / "socket")
        return list(Forked(path, ["-m", "this"], env=dict(os.environ), output=output.fileno()).changes())


VALID: dict[str, Any] = {
    "argv": ["-m", "this"], "env": {}, "folder": "/", "umask": 0, "cores": [0], "files": [],
}  # fmt: skip
MALFORMED = {
    "deep": b"[" * 200_000 + b"]" * 200_000 + b"\n",
    "no JSON": b"{\n",
    "no bytes of text": b"\xff\xfe\n",
    "a list": b"[]\n",
    "empty": b"{}\n",
    **{
        f"{name}={value}": json.dumps({**VALID, name: value}).encode() + b"\n"
        for name, value in [
            ("argv", []), ("argv", [1]), ("env", {"A": 1}), ("env", []), ("folder", None), ("umask", -1),
            ("umask", "0"), ("cores", [-1]), ("cores", [1 << 70]), ("cores", "0"), ("files", ["A"]),
            ("files", 1),
        ]
    },
}  # fmt: skip


def drips(client: socket.socket) -> bool:
    """Send one byte more, and return whether the server has closed the connection."""
    try:
        client.sendall(b" ")
    except ConnectionError:
        return True
    return False


def files_of(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_malformed_requests_end_only_their_connections_and_leave_no_files(tmp_path: Path) -> None:
    with small_server(tmp_path / "s") as server, open(os.devnull, "rb") as empty:
        assert fork_this(tmp_path / "s") == [0]
        before = files_of(server.pid)
        for what, request in MALFORMED.items():
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(5)
                client.connect(str(tmp_path / "s" / "socket"))
                sent = socket.send_fds(client, [request], [empty.fileno()] * 3)
                with contextlib.suppress(ConnectionError):
                    client.sendall(request[sent:])
                    assert client.recv(1) == b"", what
        assert server.poll() is None
        assert wait_for(lambda: files_of(server.pid) <= before, 5)
        assert fork_this(tmp_path / "s") == [0]


def test_silent_dripping_and_flooding_clients_do_not_delay_others(tmp_path: Path) -> None:
    program = "from tfdistr.fork_server import server\nserver._SECONDS = 3.0\n" + SERVER
    with small_server(tmp_path / "s", program=program) as server, contextlib.ExitStack() as stack:
        assert fork_this(tmp_path / "s") == [0]
        before = files_of(server.pid)
        clients = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(21)]
        for client in clients:
            client.settimeout(5)
            client.connect(str(tmp_path / "s" / "socket"))
        flooding = clients.pop()
        with pytest.raises(ConnectionError):
            flooding.sendall(b"[" * (1 << 26))
        began = time.monotonic()
        for client in clients[::2]:
            client.sendall(b"{")
        assert fork_this(tmp_path / "s") == [0]
        assert time.monotonic() - began < 2.5
        assert wait_for(lambda: drips(clients[0]), 10)
        assert wait_for(lambda: files_of(server.pid) <= before, 5)


def test_no_answer_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfdistr.fork_server.client.TIMEOUT", 0.5)
    with socket.socket(socket.AF_UNIX) as listener, open(os.devnull, "wb") as output:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with pytest.raises(Refused, match=r"it does not answer \(timed out\)"):
            Forked(str(tmp_path / "socket"), ["-m", "this"], env={}, output=output.fileno())


FOREIGN = """
import os, socket, sys
os.setuid(65534)
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print("listens", flush=True)
client, _ = listener.accept()
print(len(client.recv(1 << 20)), flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_nothing_is_sent_to_the_process_of_another_user(tmp_path: Path) -> None:
    place = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        place.chmod(0o777)
        socket_of_others = str(place / "socket")
        command = [sys.executable, "-c", FOREIGN, socket_of_others]
        with (
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as foreign,
            open(os.devnull, "wb") as output,
        ):
            assert foreign.stdout is not None
            assert foreign.stdout.readline() == "listens\n"
            with pytest.raises(Refused, match=f"the process at {socket_of_others} is of another user"):
                Forked(socket_of_others, ["-m", "this"], env={"SECRET": "1"}, output=output.fileno())
            assert foreign.stdout.read() == "0\n"
    finally:
        shutil.rmtree(place)


def test_a_session_has_a_few_servers_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tfdistr.stop_warm_workers()
    monkeypatch.setattr(servers, "_PYTHON", ("-c", SERVER))
    monkeypatch.setattr(servers, "MOST", 2)
    loopback = Loopback("none")
    program = [sys.executable, "-m", "this"]
    env = dict(os.environ)

    def ask(value: str) -> str:
        start = servers.warm_start(program, env | {"OMP_NUM_THREADS": value}, loopback)
        assert start is not None
        return start.server

    first, second, again, third = ask("1"), ask("2"), ask("1"), ask("3")
    assert first == again
    assert len({first, second, third}) == 3
    assert ask("1") == first  # it was used after the second one
    assert ask("2") != second
    tfdistr.stop_warm_workers()


def test_a_session_ends_quietly_while_its_fork_server_starts(tmp_path: Path) -> None:
    code = (
        "import tfdistr\n"
        "cluster = tfdistr.local_cluster(1)\n"
        "from tfdistr.fork_server.servers import _servers\n"
        "print(*(server._process.pid for server in _servers._present.values()))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, capture_output=True,
        text=True, timeout=100,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert not Path(f"/proc/{int(ended.stdout)}").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("tfdistr-warm-")] == []
