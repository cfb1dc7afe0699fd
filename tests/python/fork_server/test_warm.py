"""Warm starts: a fork is what a process of its own would be, and where there is none, workers start cold."""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters import run_commands
from forked import PROGRAM, server_of, states
from paths import WORKERS

import tfdistr
from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.fork_server import servers
from tfdistr.fork_server.child import is_read_at_load
from tfdistr.fork_server.client import Forked, Refused
from tfdistr.supervision.events import EventReader
from tfdistr.supervision.supervisor import run_workers

pytestmark = pytest.mark.timeout(180)


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "TF_FORCE_GPU_ALLOW_GROWTH", "XLA_FLAGS", "LD_PRELOAD",
                                  "OPENBLAS_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "UCX_TLS", "PYTHONPATH",
                                  "R_LIBS"])  # fmt: skip
def test_what_libraries_read_while_they_are_loaded(name: str) -> None:
    assert is_read_at_load(name)


@pytest.mark.parametrize("name", ["TF_CONFIG", "TMPDIR", "PMI_RANK", "TFDISTR_CORES", "MY_FLAG"])
def test_what_is_told_to_one_process(name: str) -> None:
    assert not is_read_at_load(name)


def test_forks_are_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, temporary = tmp_path / "folder", tmp_path / "temporary"
    for each in (folder, temporary):
        each.mkdir()
    monkeypatch.setenv("OF_SESSION", "before")
    states(tmp_path / "first")
    monkeypatch.delenv("OF_SESSION")
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.chdir(folder)
    mask = os.umask(0o027)
    try:
        found = states(tmp_path / "run", env={"OF_JOB": "a b"})
    finally:
        os.umask(mask)
    for index, state in enumerate(found):
        assert state["tensorflow"]
        assert server_of(state["parent"])
        assert state["group"] == state["pid"]
        assert state["argv"] == [PROGRAM[1], str(tmp_path / "run"), str(index)]
        assert state["command"][-3:] == state["argv"]  # in the process table, too
        assert (state["path"], state["folder"]) == (str(WORKERS), str(folder))
        assert state["umask"] == 0o027
        assert state["temporary"] == str(temporary)
        assert state["variables"] == {"OF_JOB": "a b", "OF_SESSION": None, "OMP_NUM_THREADS": None}
        assert state["child_signal"]
        assert not state["sockets"]
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


def test_modules_of_the_user_are_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, mine\nfrom tfdistr.supervision.events import EventWriter\n"
        "EventWriter(sys.argv[1], 0).write('done', seconds=mine.NUMBER)\n"
    )
    for number in (1, 22):
        (tmp_path / "mine.py").write_text(f"NUMBER = {number}\n")
        run_workers(local_cluster(1), [sys.executable, str(program)], tmp_path / str(number))
        (event,) = EventReader(tmp_path / str(number), 1).poll()
        assert event["seconds"] == number


@pytest.mark.parametrize("warm", [True, False])
def test_a_worker_that_imports_the_description_of_a_cluster_starts_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import tfdistr\nCLUSTER = tfdistr.local_cluster(2)\n")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, mine\nfrom tfdistr.supervision.events import EventWriter\n"
        "from tfdistr.fork_server import servers\n"
        "EventWriter(sys.argv[1], 0).write('done', seconds=len(servers.pids()))\n"
    )
    run_workers(local_cluster(1, warm=warm), [sys.executable, str(program)], tmp_path / "run")
    (event,) = EventReader(tmp_path / "run", 1).poll()
    assert event["seconds"] == 0
    session = "import mine\nfrom tfdistr.fork_server import servers\nprint(len(servers.pids()))"
    ran = subprocess.run([sys.executable, "-c", session], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "1\n", ran.stderr


@pytest.mark.parametrize("strategy", ["parameter_server", "model_parallel"])
def test_servers_and_the_chief_start_warm(tmp_path: Path, strategy: str) -> None:
    ps = strategy == "parameter_server"
    layers = {"first": "worker 0", "second": "worker 1"}
    chosen = tfdistr.parameter_server() if ps else tfdistr.model_parallel(layers)
    fit = tfdistr.distributed_fit(
        _model, np.arange(40.0).reshape(20, 2) / 40, np.arange(20) % 2, batch_size=4, strategy=chosen,
        cluster=local_cluster(2, ps=int(ps)), run_dir=tmp_path / "run", callbacks=_parents,
    )  # fmt: skip
    logs = [Path(worker["log"]).read_text() for worker in fit.workers]
    assert "forked by tfdistr.fork_server.server" in logs[-1]  # of the chief
    assert not any("started cold" in text for text in logs)


def _model() -> Any:
    import keras

    layers = [keras.layers.Dense(4, "relu", name="first"), keras.layers.Dense(1, name="second")]
    model = keras.Sequential([keras.Input((2,)), *layers])
    model.compile("sgd", "mse")
    return model


def _parents() -> list[Any]:
    words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode().split("\0")
    print("forked by", next((word for word in words if "fork_server.server" in word), "nobody"), flush=True)
    return []


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[str]:
    """The path of a socket where each request is refused."""
    path = str(tmp_path / "socket")
    program = (
        "import socket, sys\nlistener = socket.socket(socket.AF_UNIX)\nlistener.bind(sys.argv[1])\n"
        "listener.listen()\nprint(flush=True)\n"
        "while True:\n    client, _ = listener.accept()\n    client.recv(1 << 20)\n"
        '    client.sendall(b\'{"refused": "it is tired"}\\n\')\n    client.close()\n'
    )
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield path
        process.kill()


def test_a_refusal_makes_a_cold_start_and_the_log_says_why(
    tmp_path: Path, refusing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers._ServerProcess, "path", lambda server: refusing)
    found = states(tmp_path / "run")
    assert not any(server_of(state["parent"]) for state in found)
    for index in range(2):
        log = (tmp_path / "run" / "logs" / f"worker-{index}.log").read_text()
        assert "started cold, because of its fork server: it is tired." in log


def test_no_fork_is_asked_for_where_the_working_directory_was_removed(
    tmp_path: Path, refusing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / "folder").mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(Refused, match="the working directory of its launcher was removed"):
        Forked(refusing, ["-m", "this"], env={}, output=1)


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        ("", "None"),
        ("import tensorflow as tf; known = child.threads(); tf.constant(1)",
         "TensorFlow has set up its devices in the fork server"),
        ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
         "1 thread more than after the imports run in the fork server"),
        ("child.os.readlink = lambda f: '/dev/nvidiactl'", "the fork server uses a GPU, which a fork cannot"),
        ("child.os.readlink = lambda f: '/dev/dxg'", "the fork server uses a GPU, which a fork cannot"),
    ],
)  # fmt: skip
def test_what_must_be_at_rest(tmp_path: Path, prepare: str, reason: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, sys, threading, time\nfrom tfdistr.fork_server import child\nd = sys.argv[1]\n"
        f"known = child.threads()\n{prepare}\n"
        "print(child.why_unsafe(known), flush=True)\nos._exit(0)"
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
        "Workers start cold: cannot start the fork server ([Errno 28] No space left on device)."
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
    assert any("exited with status 1: ImportError: no keras today" in r.getMessage() for r in caplog.records)
