"""Workers on several hosts, which are network namespaces here, each with an ssh server of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hosts
import numpy as np
import pytest
from launched import wait_for
from paths import WORKERS
from slow import mostly_slow

import tfdistr
from tfdistr.errors import ClusterStartError, WorkerFailedError
from tfdistr.launch.events import EventReader
from tfdistr.launch.local import local_cluster
from tfdistr.launch.mpi_cluster import LocalMpi, MpiCluster, mpi_cluster
from tfdistr.launch.rank_guard import SIGN_OF_LIFE
from tfdistr.launch.supervisor import WorkerStatus, run_workers

pytestmark = pytest.mark.timeout(240)

# That the hosts are on one machine must not be seen.
BY_NETWORK = {"UCX_TLS": "tcp,self"}

# --- Hosts


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[hosts.Hosts]:
    """Hosts a, b, c and d, of which c does not see ``net.own`` and d no Python of this environment."""
    reason = hosts.missing()
    if reason:
        pytest.skip(f"no hosts to test with: {reason}")
    own = tmp_path_factory.mktemp("own")
    hidden = {"c": own, "d": Path(sys.executable).parent}
    with hosts.hosts("abcd", tmp_path_factory.mktemp("hosts"), hidden) as made:
        made.own = own
        yield made


class Job:
    """Runs workers on hosts, and looks whether something is left there."""

    def __init__(self, net: hosts.Hosts, run_dir: Path, warm: bool) -> None:
        self.net = net
        self.run_dir = run_dir
        self.warm = warm

    def cluster(self, names: str, each: int = 2, **options: Any) -> MpiCluster:
        return mpi_cluster(list(names), each, ssh=self.net.ssh, env=BY_NETWORK, warm=self.warm, **options)

    def run(self, behaviours: str, names: str = "ab", **options: Any) -> list[WorkerStatus]:
        self.run_dir.mkdir(exist_ok=True)
        command = [sys.executable, str(WORKERS / "worker.py"), behaviours]
        return run_workers(self.cluster(names, **options), command, self.run_dir)

    def fail(self, behaviours: str, names: str = "ab") -> WorkerFailedError:
        with pytest.raises(WorkerFailedError) as caught:
            self.run(behaviours, names)
        return caught.value

    def not_start(self, names: str, **options: Any) -> str:
        """The message of the error, which names worker 1 and the last host."""
        with pytest.raises(ClusterStartError) as caught:
            self.run("finish", names, **options)
        assert (caught.value.worker, caught.value.host) == (1, names[-1])
        return str(caught.value)

    def left(self) -> list[str]:
        """What still runs on the hosts; the end of a process is seen a little late."""
        until = time.monotonic() + 5
        while self.net.processes() and time.monotonic() < until:
            time.sleep(0.1)
        return self.net.processes()


@pytest.fixture(params=["cold", "warm"])
def job(net: hosts.Hosts, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Job]:
    job = Job(net, tmp_path / "run", request.param == "warm")
    yield job
    assert job.left() == []


#: How `make test` starts the workers of a test; `make test-all` starts them in both ways.
COLD = pytest.mark.parametrize("job", mostly_slow(["cold", "warm"], quick=["cold"]), indirect=True)
WARM = pytest.mark.parametrize("job", mostly_slow(["cold", "warm"], quick=["warm"]), indirect=True)


@WARM
def test_workers_on_two_hosts(job: Job) -> None:
    statuses = job.run("finish")
    assert [(status.index, status.host, status.status) for status in statuses] == [
        (0, "a", "done"), (1, "a", "done"), (2, "b", "done"), (3, "b", "done"),
    ]  # fmt: skip
    started = [event for event in EventReader(job.run_dir, 4).poll() if event["event"] == "started"]
    assert {event["worker"]: event["pid"] for event in started} == {s.index: s.pid for s in statuses}


@pytest.mark.slow
def test_the_environment_of_a_worker(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "not json")
    monkeypatch.setenv("PMI_SIZE", "7")  # as in a process that is itself a rank
    monkeypatch.setenv("OF_THE_CALLER", "yes")
    job.run("environment", "ab", each=1)
    events = [event for event in EventReader(job.run_dir, 2).poll() if event["event"] == "environment"]
    by_worker = [event["values"] for event in sorted(events, key=lambda event: event["worker"])]
    for values, name in zip(by_worker, "ab", strict=True):
        assert "TF_CONFIG" not in values
        assert (values["PMI_SIZE"], values["PMI_HOSTNAME"]) == ("2", name)
        assert (values["OF_THE_CALLER"], values["UCX_TLS"]) == ("yes", "tcp,self")


@COLD
def test_a_worker_that_fails_on_another_host(job: Job) -> None:
    error = job.fail("lose_peer,lose_peer,lose_peer,fail_late")
    assert str(error).startswith("Worker 3 of 4 on b failed: ValueError: bad loss\n\nTraceback")
    assert (error.host, error.exit_code) == ("b", 1)


@pytest.mark.slow
@pytest.mark.parametrize("job", ["warm"], indirect=True)
def test_a_worker_that_is_killed_on_another_host(job: Job) -> None:
    error = job.fail("wait,wait,kill,ignore_sigterm")
    assert str(error).startswith("Worker 2 of 4 on b was killed by SIGKILL")
    assert [status.status for status in error.workers] == ["stopped", "stopped", "failed", "stopped"]


@pytest.mark.slow
@pytest.mark.parametrize("job", ["warm"], indirect=True)
def test_halted_workers_on_other_hosts_are_ended(job: Job) -> None:
    assert job.fail("fail_late,wait,halt,halt").worker == 0


@pytest.mark.slow
@pytest.mark.parametrize("job", ["cold"], indirect=True)
def test_a_host_that_is_lost_is_named_and_a_short_cut_ends_nothing(job: Job) -> None:
    job.run_dir.mkdir()
    times: dict[str, float] = {}

    def cut(event: dict[str, Any]) -> None:
        if (event["event"], event["worker"]) == ("ready", 1):
            threading.Thread(target=lose).start()

    def lose() -> None:
        job.net.cut("b")
        time.sleep(3)
        job.net.mend("b")
        time.sleep(8)  # longer than the launcher waits: it has heard of b again
        times["lost"] = time.monotonic()
        job.net.cut("b")

    command = [sys.executable, str(WORKERS / "worker.py"), "wait"]
    try:
        with pytest.raises(WorkerFailedError) as caught:
            run_workers(job.cluster("ab", each=1), command, job.run_dir, cut, heartbeat_timeout=6)
        assert 4 < time.monotonic() - times["lost"] < 40
    finally:
        job.net.end_all("b")
        job.net.mend("b")
    message = str(caught.value)
    assert re.match(r"Worker 1 of 2 on b gave no sign of life for \d+ s: its machine or network ", message)
    assert message.endswith("host runs and can be reached, or pass a larger `heartbeat_timeout`.")
    assert (caught.value.worker, caught.value.host) == (1, "b")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "number"), [("cold", signal.SIGINT), ("warm", signal.SIGKILL)], indirect=["job"]
)
def test_nothing_is_left_on_the_hosts_when_the_caller_ends(job: Job, number: signal.Signals) -> None:
    job.run_dir.mkdir()
    worker = [sys.executable, str(WORKERS / "worker.py"), "wait,halt"]
    carrier = f"{'warm-' if job.warm else ''}hosts:{job.net.ssh}:a,b"
    parent = [sys.executable, str(WORKERS / "parent.py"), carrier, "1", str(job.run_dir)]
    servers = job.net.fork_servers()
    process = subprocess.Popen([*parent, *worker], stderr=subprocess.DEVNULL, env=os.environ | BY_NETWORK)
    try:
        ready, reader, until = set(), EventReader(job.run_dir, 2), time.monotonic() + 30
        while len(ready) < 2 and time.monotonic() < until:
            ready |= {event["worker"] for event in reader.poll() if event["event"] == "ready"}
            time.sleep(0.05)
        assert len(job.net.processes()) >= 4
        assert (len(job.net.fork_servers()) > len(servers)) == job.warm
        process.send_signal(number)
        assert process.wait(15) == -number
    finally:
        process.kill()
        process.wait()
    assert wait_for(lambda: job.net.fork_servers() == servers, 10)


#: Reaches hosts that are all this machine, and marks what runs there by their names.
LIKE_SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
export HOST_OF_TEST="$1"
shift
exec sh -c "$*"
"""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def mpiexec_of(pid: int) -> int:
    """The mpiexec that has started a process, or what has."""
    while not Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("mpiexec"):
        pid = parent(pid)
    return pid


def proxies(host: str) -> list[int]:
    """What mpiexec has started on a host, to start the workers there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            program = (process / "cmdline").read_bytes().split(b"\0")[0]
            here = f"HOST_OF_TEST={host}".encode() in (process / "environ").read_bytes().split(b"\0")
            if here and program.endswith(b"hydra_pmi_proxy"):
                found.append(int(process.name))
    return found


def run_on_hosts_of_test(tmp_path: Path, each: int, lose: Callable[[], None]) -> WorkerFailedError:
    """The error of a job on a and b, after something was lost when all workers were ready."""
    ssh, run_dir, ready = tmp_path / "like_ssh", tmp_path / "run", set()
    ssh.write_text(LIKE_SSH)
    ssh.chmod(0o700)
    run_dir.mkdir()

    def look(event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            ready.add(event["worker"])
            if len(ready) == 2 * each:
                threading.Thread(target=lose).start()

    cluster = mpi_cluster(["a", "b"], each, ssh=str(ssh), env=BY_NETWORK, warm=False)
    worker = [sys.executable, str(WORKERS / "worker.py"), "wait"]
    with pytest.raises(WorkerFailedError) as caught:
        run_workers(cluster, worker, run_dir, look)
    assert wait_for(lambda: not proxies("a") + proxies("b"), 10)
    return caught.value


@pytest.mark.parametrize("host", mostly_slow(["a", "b"], quick=["b"]))
@pytest.mark.parametrize("silent", mostly_slow([False, True], quick=[False]))
def test_the_host_is_named_on_which_mpiexec_lost_what_it_runs(
    tmp_path: Path, silent: bool, host: str
) -> None:
    def lose() -> None:
        (proxy,) = proxies(host)
        if silent:
            time.sleep(2 * SIGN_OF_LIFE)  # of all workers
            os.kill(proxy, signal.SIGSTOP)
            time.sleep(4 * SIGN_OF_LIFE)
        os.kill(proxy, signal.SIGKILL)

    error, indices = run_on_hosts_of_test(tmp_path, 2, lose), {"a": (0, 1), "b": (2, 3)}[host]
    if silent:
        assert re.match(
            rf"Worker {error.worker} of 4 on {host} was lost: it gave no sign of life for \d+ s, and then "
            r"mpiexec ended with status \d+\.\n\nIts last lines:\n  ", error.message,
        )  # fmt: skip
        assert error.worker in indices
    else:
        assert error.message.startswith(
            f"Workers {indices[0]} on {host}, {indices[1]} on {host} were lost with what mpiexec runs there, "
            "and then mpiexec ended with status "
        )
        assert error.worker == indices[0]
    assert error.host == host
    assert [status.status for status in error.workers] == ["failed"] * 4


def test_a_lost_mpiexec_is_named_with_this_machine_and_no_worker_is_blamed(tmp_path: Path) -> None:
    def lose() -> None:
        os.kill(mpiexec_of(proxies("a")[0]), signal.SIGKILL)

    error, here = run_on_hosts_of_test(tmp_path, 1, lose), socket.gethostname()
    assert error.message.startswith(
        f"Workers 0 on a, 1 on b were lost: mpiexec on {here} was killed by SIGKILL.\n"
    )
    assert (error.worker, error.host, error.log) == (None, here, None)


@pytest.mark.parametrize("what", ["proxy", "mpiexec"])
def test_what_is_lost_of_a_local_cluster_is_lost_on_this_machine(tmp_path: Path, what: str) -> None:
    def lose(event: dict[str, Any]) -> None:
        if event["event"] == "started":
            proxy = parent(parent(event["pid"]))
            os.kill(proxy if what == "proxy" else mpiexec_of(proxy), signal.SIGKILL)

    worker = [sys.executable, str(WORKERS / "worker.py"), "wait"]
    with pytest.raises(WorkerFailedError) as caught:
        run_workers(LocalMpi(local_cluster(1, warm=False)), worker, tmp_path, lose)
    assert caught.value.host == socket.gethostname()
    assert caught.value.worker == (0 if what == "proxy" else None)


@WARM
def test_a_host_that_is_switched_off_is_named(job: Job) -> None:
    job.run_dir.mkdir()
    ready = set()

    def look(event: dict[str, Any]) -> None:
        if event["event"] == "ready":
            ready.add(event["worker"])
            if len(ready) == 2:
                threading.Thread(target=job.net.end_all, args=("b",)).start()

    command = [sys.executable, str(WORKERS / "worker.py"), "wait"]
    with pytest.raises(WorkerFailedError) as caught:
        run_workers(job.cluster("ab", each=1), command, job.run_dir, look)
    assert str(caught.value).startswith("Worker 1 on b was lost with what mpiexec runs there, and then mpie")
    assert (caught.value.worker, caught.value.host) == (1, "b")


# --- Hosts that are not as they must be


@pytest.mark.slow
@pytest.mark.parametrize("job", ["cold"], indirect=True)
def test_a_run_directory_that_a_host_does_not_see(job: Job) -> None:
    job.run_dir = job.net.own / "run"
    lines = job.not_start("ac", each=1).splitlines()
    assert lines == [
        "The run directory must be one that every host sees under the same path.",
        f"Received: {job.run_dir}, which is not there on c (worker 1)",
        "Fix: Pass `run_dir`, a folder of a file system that the hosts share.",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("job", ["cold"], indirect=True)
def test_a_host_without_this_python(job: Job) -> None:
    message = job.not_start("ad", each=1)
    assert message.startswith("mpiexec must start all 2 workers, and must not end before they do.\nRec")
    assert "without workers 1 on d." in message  # and whatever a had come to
    assert "hydra_pmi_proxy: No such file or directory" in message
    assert message.endswith(f"have this Python and tfdistr at the same path: {sys.executable}.")


@pytest.mark.slow
@pytest.mark.parametrize("job", ["cold"], indirect=True)
def test_a_host_that_cannot_be_reached(job: Job) -> None:
    message = job.not_start("a?", each=1)
    assert "1 on ?. Its last lines:\n  ssh: Could not resolve hostname ?: Name or service not" in message
    assert "[mpiexec@" not in message
    assert "\nFix: Each host must let you in by ssh without a password" in message


# --- Training


def model(*others: str) -> Any:
    import keras

    parts = [getattr(keras.layers, name)(0.3) for name in others]
    model = keras.Sequential([keras.layers.Flatten(), *parts, keras.layers.Dense(10, "softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def fits_of(build: Callable[[], Any], *clusters: Any, **arguments: Any) -> list[tfdistr.FitResult]:
    digits = tfdistr.load_dataset("digits")
    given = {"batch_size": 64, "steps_per_epoch": 22, "epochs": 2, "seed": 1, "verbose": 0, **arguments}
    return [tfdistr.distributed_fit(build, digits, cluster=cluster, **given) for cluster in clusters]


@pytest.mark.slow
@pytest.mark.parametrize("job", ["cold"], indirect=True)
def test_distributed_fit_on_two_hosts_gives_the_numbers_of_one_worker(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fits = fits_of(model, job.cluster("ab", each=1), tfdistr.local_cluster(1))
    hosts_of = [worker["host"] for worker in fits[0].workers]
    assert (hosts_of, fits[0].params["communication"]) == (["a", "b"], "mpi")
    assert Path(str(fits[0].run_dir)).parent == tmp_path
    np.testing.assert_allclose(fits[0].history["loss"], fits[1].history["loss"], rtol=1e-6)
    for received, expected in zip(fits[0].model.get_weights(), fits[1].model.get_weights(), strict=True):
        np.testing.assert_allclose(received, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("job", ["warm"], indirect=True)
def test_virtual_workers_on_hosts_give_the_bits_of_one_worker(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    clusters = (job.cluster("abc", each=1), tfdistr.local_cluster(1))
    many, one = fits_of(partial(model, "Dropout"), *clusters, virtual_workers=4)
    assert many.history == one.history
    for received, expected in zip(many.model.get_weights(), one.model.get_weights(), strict=True):
        assert received.tobytes() == expected.tobytes()
