"""Warm starts: a fork is what a process of its own would be, and where there is none, workers start cold."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import run_commands
from launched import FOLDER, SMALL_SERVER, command, is_there, wait_for

import tfdistr
from tfdistr.errors import ArgumentError, WorkerFailedError
from tfdistr.events import EventReader
from tfdistr.launch import local_cluster, mpi_cluster, run_workers
from tfdistr.launch.loopback import Loopback
from tfdistr.launch.mpi import LocalMpi
from tfdistr.launch.warm import servers
from tfdistr.launch.warm.client import Forked, Refused
from tfdistr.launch.warm.environment import is_read_at_load

pytestmark = pytest.mark.timeout(180)

PROGRAM = [sys.executable, str(FOLDER / "forked.py")]


def states(run_dir: Path, workers: int = 2, mpi: bool = False, **options: Any) -> list[dict[str, Any]]:
    """What the workers of a run tell of themselves."""
    cluster = local_cluster(workers, **options)
    run_workers(LocalMpi(cluster) if mpi else cluster, PROGRAM, run_dir)
    found = [event for event in EventReader(run_dir, workers).poll() if event["event"] == "state"]
    return sorted(found, key=lambda state: state["worker"])


def server_of(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError):  # a guard may have ended
        return b"tfdistr.launch.warm.server" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


# --- Arguments


@pytest.mark.parametrize("make", [local_cluster, lambda **options: mpi_cluster(["a"], **options)])
@pytest.mark.parametrize("warm", [3, "yes", None])
def test_warm_is_true_or_false(make: Any, warm: Any) -> None:
    with pytest.raises(ArgumentError) as caught:
        make(warm=warm)
    assert str(caught.value).splitlines() == [
        "`warm` must be true or false.", f"Received: {warm!r}", "Fix: Pass warm=True.",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "TF_FORCE_GPU_ALLOW_GROWTH", "XLA_FLAGS", "LD_PRELOAD",
                                  "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "UCX_TLS", "PYTHONPATH",
                                  "R_LIBS"])  # fmt: skip
def test_what_libraries_read_while_they_are_loaded(name: str) -> None:
    assert is_read_at_load(name)


@pytest.mark.parametrize("name", ["TF_CONFIG", "TMPDIR", "PMI_RANK", "TFDISTR_CORES", "MY_FLAG"])
def test_what_is_told_to_one_process(name: str) -> None:
    assert not is_read_at_load(name)


# --- What a fork is


@pytest.mark.parametrize("mpi", [False, True])
def test_forks_are_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mpi: bool) -> None:
    folder, temporary = tmp_path / "folder", tmp_path / "temporary"
    for each in (folder, temporary):
        each.mkdir()
    monkeypatch.setenv("OF_SESSION", "before")
    states(tmp_path / "first", mpi=mpi)
    monkeypatch.delenv("OF_SESSION")
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.chdir(folder)
    mask = os.umask(0o027)
    try:
        found = states(tmp_path / "run", mpi=mpi, env={"OF_JOB": "a b"})
    finally:
        os.umask(mask)
    for index, state in enumerate(found):
        assert state["tensorflow"]
        assert server_of(state["parent"])
        assert state["group"] == state["pid"]
        assert state["argv"] == [PROGRAM[1], str(tmp_path / "run"), str(index)]
        assert state["command"][-3:] == state["argv"]  # in the process table, too
        assert (state["path"], state["folder"]) == (str(FOLDER), str(folder))
        assert state["umask"] == 0o027
        assert state["temporary"] == str(temporary)
        assert state["variables"] == {"OF_JOB": "a b", "OF_SESSION": None, "OMP_NUM_THREADS": None}
        assert state["child_signal"]
        assert state["sockets"] == mpi  # that of the process manager
    assert found[0]["random"] != found[1]["random"]
    assert found[0]["parent"] == found[1]["parent"]


@pytest.mark.usefixtures("_small_servers")
def test_a_job_with_other_variables_that_libraries_read_has_its_own_server(tmp_path: Path) -> None:
    one = states(tmp_path / "one", 1)[0]
    other = states(tmp_path / "other", 1, env={"OMP_NUM_THREADS": "1"})[0]
    again = states(tmp_path / "again", 1)[0]
    assert one["parent"] == again["parent"] != other["parent"]
    assert other["variables"]["OMP_NUM_THREADS"] == "1"
    assert one["variables"]["OMP_NUM_THREADS"] is None


def test_cold_workers(tmp_path: Path) -> None:
    state = states(tmp_path, 1, warm=False)[0]
    assert (state["parent"], state["tensorflow"]) == (os.getpid(), False)


def test_modules_of_the_user_are_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, mine\nfrom tfdistr.events import EventWriter\n"
        "EventWriter(sys.argv[1], 0).write('done', seconds=mine.NUMBER)\n"
    )
    for number in (1, 22):
        (tmp_path / "mine.py").write_text(f"NUMBER = {number}\n")
        run_workers(local_cluster(1), [sys.executable, str(program)], tmp_path / str(number))
        (event,) = EventReader(tmp_path / str(number), 1).poll()
        assert event["seconds"] == number


def test_a_warm_worker_trains_to_the_bits_of_a_cold_one(tmp_path: Path) -> None:
    weights = {}
    for warm in (False, True):
        fit = tfdistr.distributed_fit(
            _model, np.arange(40.0).reshape(20, 2) / 40, np.arange(20) % 2, batch_size=4, seed=3, epochs=2,
            cluster=local_cluster(1, warm=warm), run_dir=tmp_path / str(warm), callbacks=_parents,
        )  # fmt: skip
        weights[warm] = fit.model.get_weights()
        log = Path(fit.workers[0]["log"]).read_text()
        assert ("forked by tfdistr.launch.warm.server" in log) == warm
    assert all(np.array_equal(*pair) for pair in zip(weights[False], weights[True], strict=True))


@pytest.mark.parametrize("strategy", ["parameter_server", "model_parallel"])
def test_servers_and_the_chief_start_warm(tmp_path: Path, strategy: str) -> None:
    ps = strategy == "parameter_server"
    options: dict[str, Any] = {} if ps else {"placement": {"first": "worker 0", "second": "worker 1"}}
    fit = tfdistr.distributed_fit(
        _model, np.arange(40.0).reshape(20, 2) / 40, np.arange(20) % 2, batch_size=4, strategy=strategy,
        cluster=local_cluster(2, ps=int(ps)), run_dir=tmp_path / "run", callbacks=_parents, **options,
    )  # fmt: skip
    logs = [Path(worker["log"]).read_text() for worker in fit.workers]
    assert "forked by tfdistr.launch.warm.server" in logs[-1]  # of the chief
    assert not any("started cold" in text for text in logs)


def _model() -> Any:
    import keras

    layers = [keras.layers.Dense(4, "relu", name="first"), keras.layers.Dense(1, name="second")]
    model = keras.Sequential([keras.Input((2,)), *layers])
    model.compile("sgd", "mse")
    return model


def _parents() -> list[Any]:
    words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode().split("\0")
    print("forked by", next((word for word in words if "warm.server" in word), "nobody"), flush=True)
    return []


# --- Where a worker has to start cold


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[str]:
    """The path of a socket where each request is refused."""
    path = str(tmp_path / "socket")
    program = (
        "import socket, sys\nlistener = socket.socket(socket.AF_UNIX)\nlistener.bind(sys.argv[1])\n"
        "listener.listen()\nprint(flush=True)\n"
        "while True:\n    client, _ = listener.accept()\n    client.recv(1 << 20)\n"
        "    client.sendall(b'{\"refused\": \"it is tired\"}\\n')\n    client.close()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield path
        process.kill()


@pytest.mark.parametrize("mpi", [False, True])
def test_a_refusal_makes_a_cold_start_and_the_log_says_why(
    tmp_path: Path, refusing: str, monkeypatch: pytest.MonkeyPatch, mpi: bool
) -> None:
    monkeypatch.setattr(servers._Server, "path", lambda server: refusing)
    found = states(tmp_path / "run", mpi=mpi)
    assert not any(server_of(state["parent"]) for state in found)
    for index in range(2):
        log = (tmp_path / "run" / "logs" / f"worker-{index}.log").read_text()
        assert "started cold, because of its fork server: it is tired." in log


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        ("", "None"),
        ("import tensorflow as tf; known = safety.threads(); tf.constant(1)",
         "TensorFlow has set up its devices in the fork server"),
        ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
         "1 thread more than after the imports run in the fork server"),
        ("os.symlink('/dev/null', d + '/x'); safety.os.readlink = lambda f: '/dev/nvidia0'",
         "the fork server uses a GPU, which a fork cannot"),
    ],
)  # fmt: skip
def test_what_must_be_at_rest(tmp_path: Path, prepare: str, reason: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, threading, time\nfrom tfdistr.launch.warm import safety\nd = sys.argv[1]\n"
        f"known = safety.threads()\n{prepare}\n"
        "print(safety.why_unsafe(known), flush=True)\nos._exit(0)"
    )
    (ended,) = run_commands([[sys.executable, str(program), str(tmp_path)]], [dict(os.environ)], 120)
    assert ended.output.strip().splitlines()[-1] == reason


def test_no_server_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(**options: Any) -> str:
        raise OSError(28, "No space left on device")

    servers._warn_once.cache_clear()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "tfdistr"):
        patch.setattr(servers.tempfile, "mkdtemp", full)
        found = states(tmp_path, env={"OMP_NUM_THREADS": "3"})
    assert not any(server_of(state["parent"]) for state in found)
    assert [record.getMessage() for record in caplog.records if "cold" in record.getMessage()] == [
        "Workers start cold: no process that forks them can be started ([Errno 28] No space left on device)."
    ]


def test_a_server_that_cannot_import(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "keras.py").write_text("raise ImportError('no keras today')")
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    with caplog.at_level(logging.WARNING, "tfdistr"):
        found = states(tmp_path / "run", 1, env={"PYTHONPATH": paths})
        assert not server_of(found[0]["parent"])
        log = (tmp_path / "run" / "logs" / "worker-0.log").read_text()
        assert "started cold, because of its fork server: it ended." in log
        local_cluster(1)  # looks at the servers
    assert any("ended with status 1: ImportError: no keras today" in r.getMessage() for r in caplog.records)


# --- The end of a server


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
    assert str(error).startswith(f"{place} was lost with its fork server, the process that had forked it")
    assert wait_for(lambda: not any(is_there(pid) for pid in started.values()), 10)
    # The next job has another one.
    assert server_of(states(tmp_path / "next", 1)[0]["parent"])


@pytest.mark.usefixtures("_small_servers")
def test_a_server_that_dies_with_ranks_of_mpi(tmp_path: Path) -> None:
    def kill_server(event: dict[str, Any]) -> None:
        started.setdefault(event["worker"], event.get("pid", 0))
        if event["event"] == "ready" and event["worker"] == 0:
            stat = Path(f"/proc/{started[0]}/stat").read_text()
            os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)

    started: dict[int, int] = {}
    with pytest.raises(WorkerFailedError, match="was lost with its fork server"):
        run_workers(LocalMpi(local_cluster(2)), command("wait"), tmp_path, kill_server)


@pytest.mark.usefixtures("_small_servers")
def test_stop_warm_workers(tmp_path: Path) -> None:
    first = states(tmp_path / "first", 1)[0]["parent"]
    folder = Path(Path(f"/proc/{first}/cmdline").read_bytes().split(b"\0")[3].decode())
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
from tfdistr.launch import local_cluster, run_workers
from tfdistr.launch.warm import servers
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
from tfdistr.launch.warm import server
server._MODULES = ()
server.IDLE = float(sys.argv[3].strip() or 60)
server.main()
"""


@contextlib.contextmanager
def small_server(folder: Path, idle: float = 60.0) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(folder), str(listener.fileno()), str(idle)],
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
            "import sys; sys.path.insert(0, sys.argv[1]); import client\n"
            "try: client.Forked(sys.argv[2], ['-m', 'this'], env={}, output=1); print('forked')\n"
            "except client.Refused as error: print(error)"
        )
        copied = tmp_path / "client.py"  # where another user can read it
        copied.write_text((Path(servers.__file__).with_name("client.py")).read_text())
        ended = subprocess.run(
            ["/usr/bin/python3", "-I", "-c", ask, str(tmp_path), path], user=65534, capture_output=True,
            text=True, timeout=60, cwd="/",
        )  # fmt: skip
        refusals = ("it ended", "it does not answer ([Errno 32] Broken pipe)")
        assert ended.stdout.strip() in refusals, ended.stderr


def test_no_answer_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfdistr.launch.warm.client.TIMEOUT", 0.5)
    with socket.socket(socket.AF_UNIX) as listener, open(os.devnull, "wb") as output:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with pytest.raises(Refused, match=r"it does not answer \(timed out\)"):
            Forked(str(tmp_path / "socket"), ["-m", "this"], env={}, output=output.fileno())


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
