"""Nobody else reaches the workers of this machine or has them run other things; secrets stay secret."""

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sockets
from launched import wait_for
from observed import containing
from paths import PROGRAMS
from slow import mostly_slow

from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.clusters.worker_process import stop
from tfdistr.errors import ArgumentError
from tfdistr.network import loopback
from tfdistr.network.loopback import LOOPBACK, Loopback, keep_to_loopback, restore_preload
from tfdistr.supervision.events import EventReader

PROGRAM = PROGRAMS / "until_told.py"
#: What each job listens on: a server in each process; by MPI workers share memory.
CARRIERS = {"ring": 2, "mpi": 0, "parameter_server": 4}
#: What users set for jobs of several machines: by it MPI would listen at the interface's own address.
NETWORKS = [
    {"UCX_TLS": "tcp,self"},
    {"MPIR_CVAR_CH4_NETMOD": "ofi", "MPIR_CVAR_NOLOCAL": "1", "FI_PROVIDER": "tcp"},
]

# Only the jobs train, and these are in sessions of their own.
pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("_small_servers")]


@pytest.fixture(scope="module")
def neighbour() -> Iterator[sockets.Neighbour | None]:
    """Another host; None where there can be none."""
    if sockets.no_neighbour():
        yield None
        return
    with sockets.neighbour() as host:
        yield host


@contextlib.contextmanager
def job(carrier: str, folder: Path, token: str, env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A job that trains until there is a file "stop" in ``folder``."""
    own = {"SECRET": token, "CUDA_VISIBLE_DEVICES": "", "TF_CONFIG": ""}
    with (folder / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), carrier, str(folder)], stdout=output, stderr=subprocess.STDOUT,
            env={**os.environ, **own, **env}, text=True, start_new_session=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


# Slow: a job trains while it is attacked.
@pytest.mark.parametrize(
    ("carrier", "env"),
    mostly_slow(
        [*((carrier, {}) for carrier in CARRIERS), *(("mpi", env) for env in NETWORKS)],
        quick=[("ring", {})],
    ),
)
def test_a_job_is_out_of_reach_and_keeps_secrets(
    carrier: str, env: dict[str, str], tmp_path: Path, neighbour: sockets.Neighbour | None
) -> None:
    """It trains on while another host tries in vain, and a password that it has is nowhere to be read."""
    word = secrets.token_hex(16)
    token = f"{word} \"quoted\" $HOME 'a;b'\n\\n \u20ac="
    run_dir = tmp_path / "run"
    events = EventReader(run_dir, 4)
    epochs: list[dict[str, Any]] = []

    def trained(process: subprocess.Popen[str]) -> bool:
        """Whether more than two epochs have ended since ``epochs`` was cleared."""
        assert process.poll() is None, (tmp_path / "output").read_text()[-3000:]
        epochs.extend(event for event in events.poll() if event["event"] == "epoch_end")
        return len(epochs) > 2

    with job(carrier, tmp_path, token, env) as process:
        assert wait_for(lambda: trained(process), 150)
        pids = sockets.descendants(process.pid)
        addresses = sockets.listening(pids)
        ports = [int(address.split()[1]) for address in addresses]
        assert len(ports) == CARRIERS[carrier], addresses
        assert [address for address in addresses if not sockets.is_loopback(address)] == []
        for port in ports:
            socket.create_connection(("127.0.0.1", port), 5).close()
        if neighbour:
            with socket.create_server(("", 0)) as open_to_all:
                tried = [*ports, open_to_all.getsockname()[1]]
                assert neighbour.reaches(tried) == tried[-1:]
        assert containing(word, pids, run_dir) == []
        events.poll()
        epochs.clear()
        assert wait_for(lambda: trained(process), 60)
        (tmp_path / "stop").write_text("")
        assert process.wait(100) == 0, (tmp_path / "output").read_text()[-3000:]

    said = (tmp_path / "output").read_text()
    assert "'done'" in said
    assert "'failed'" not in said
    assert containing(word, set(), run_dir) == []
    assert word not in said
    left = [json.loads(file.read_text()) for file in tmp_path.glob("worker-*.json")]
    assert len(left) == (1 if carrier == "parameter_server" else 2)  # callbacks are the chief's there
    for environment in left:
        assert environment == {"token": hashlib.sha256(token.encode()).hexdigest(), "preload": "libm.so.6"}


# Listens as TensorFlow does, and sees whether the other worker can be reached.
SERVER = """
import json, os, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
addresses = [address.split(":") for address in config["cluster"]["worker"]]
own, other = config["task"]["index"], 1 - config["task"]["index"]
server = socket.create_server(("::", int(addresses[own][1])), family=socket.AF_INET6, dualstack_ipv6=True)
for attempt in range(600):
    try:
        socket.create_connection(addresses[other]).close()
        break
    except ConnectionRefusedError:
        time.sleep(0.05)
print("reached", flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def two_servers(run_dir: Path, **env: str) -> Iterator[tuple[set[int], list[int]]]:
    """The process ids, and the ports, of two workers that listen and have reached each other."""
    processes = local_cluster(2, env=env).start([sys.executable, "-c", SERVER], run_dir)
    try:
        for process in processes:
            log = process.log
            assert wait_for(lambda log=log: "reached" in log.read_text(), 40), log.read_text()
        pids = {process.pid for process in processes}
        configs = [Path(f"/proc/{pid}/environ").read_bytes() for pid in pids]
        found = re.findall(rb"127\.0\.0\.1:(\d+)", configs[0])
        yield pids, [int(port) for port in found]
    finally:
        stop(processes, grace=0)


def network(pid: int) -> str:
    return os.readlink(f"/proc/{pid}/ns/net")


def test_workers_are_open_only_if_the_user_says_so(
    tmp_path: Path, neighbour: sockets.Neighbour | None
) -> None:
    for way in ("none", "preload"):
        with two_servers(tmp_path / way, **{LOOPBACK: way}) as (pids, ports):
            addresses = sockets.listening(pids)
            assert sorted(ports) == sorted(int(address.split()[1]) for address in addresses)
            assert [sockets.is_loopback(address) for address in addresses] == [way == "preload"] * 2
            if neighbour:
                assert neighbour.reaches(sorted(ports)) == (sorted(ports) if way == "none" else [])


def test_workers_may_have_a_network_of_their_own(tmp_path: Path, neighbour: sockets.Neighbour | None) -> None:
    made = subprocess.run([sys.executable, "-c", AROUND, "namespace"], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no network namespaces: {made.stderr.strip().splitlines()[-1]}")
    with two_servers(tmp_path, **{LOOPBACK: "namespace"}) as (pids, ports):
        networks = {network(pid) for pid in pids}
        assert len(networks) == 1
        assert networks != {network(os.getpid())}
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", ports[0]))
        if neighbour:
            assert neighbour.reaches(ports) == []
        interfaces = {Path(f"/proc/{pid}/net/dev").read_text().count(":") for pid in pids}
        assert interfaces == {1}
        assert all(Path(f"/proc/{pid}/status").read_text().split("Uid:\t")[1].startswith(f"{os.getuid()}\t")
                   for pid in pids)  # fmt: skip


# What the argument says is chosen in a process of its own, which is warned twice at most.
AROUND = """
import sys, warnings
warnings.formatwarning = lambda message, *_: f"{message}\\n"
from tfdistr.network import loopback
from tfdistr.network.loopback import LOOPBACK, keep_to_loopback
chosen = keep_to_loopback({LOOPBACK: sys.argv[1]} if sys.argv[1:] else {})
print(chosen.way)
for times in range(2):
    chosen.warn([2222, 2223])
"""
NO_NETWORK = 'echo 0 >/proc/sys/user/max_net_namespaces; exec "$@"'


def chosen(*command: str, path: Path) -> tuple[str, str]:
    """What is chosen with only the programs of a folder, and what is said of it."""
    whole = [*command, sys.executable, "-c", AROUND]
    ended = subprocess.run(whole, env=os.environ | {"PATH": str(path)}, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip(), ended.stderr


def test_without_a_compiler_it_is_the_other_way_and_the_user_knows(tmp_path: Path) -> None:
    way, said = chosen(path=tmp_path)
    if way == "none":
        pytest.skip(f"no network namespaces: {said}")
    assert (way, said) == (
        "namespace",
        "The workers have a network of their own, and reach no other: functions that read data over one "
        "fail. There is no other way here to keep other machines out, because there is no C compiler. "
        "Install a C compiler (cc), or, to leave the workers open to other machines, pass "
        'env={"TFDISTR_LOOPBACK": "none"} to local_cluster().\n',
    )


def test_where_nothing_helps_the_user_is_told_the_ports(tmp_path: Path) -> None:
    failing = tmp_path / "cc"
    failing.write_text("#!/bin/sh\necho 'fatal error: sys/socket.h: not found' >&2\nexit 1\n")
    failing.chmod(0o700)
    unshare = ["/usr/bin/unshare", "-U", "-r", "/bin/sh", "-c", NO_NETWORK, "sh"]
    possible = subprocess.run([*unshare[:3], "/bin/true"], capture_output=True).returncode == 0
    way, said = chosen(*(unshare if possible else ()), path=tmp_path)
    assert way == "none", said
    assert said.count("\n") == 1
    assert said.startswith(
        "As long as the job runs, whoever reaches this machine over a network can run code as you, through "
        f"ports 2222, 2223: nothing keeps other machines out here, because {failing} failed: "
        "fatal error: sys/socket.h: not found; cannot create a network namespace: "
    )
    assert said.endswith(
        " Install a C compiler (cc), or close ports 2222, 2223 in the firewall; if no other machine can "
        'reach this one, pass env={"TFDISTR_LOOPBACK": "none"} to local_cluster().\n'
    )


def test_a_way_that_was_asked_for_is_taken_or_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="The environment variable TFDISTR_LOOPBACK must") as caught:
        keep_to_loopback({LOOPBACK: "yes"})
    assert caught.value.received == '"yes"'
    asked = subprocess.run(
        [sys.executable, "-c", AROUND, "preload"], env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    assert asked.returncode == 1
    refused = "ClusterStartError: TFDISTR_LOOPBACK=preload does not work on this machine."
    assert asked.stderr.splitlines()[-3].endswith(refused)
    assert keep_to_loopback({LOOPBACK: "none"}).environment({"A": "1"}) == {"A": "1"}


def test_the_library_is_made_once_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = keep_to_loopback({}).library
    assert first is not None
    assert keep_to_loopback({}).library == first
    os.close(int(first.name))  # as where the process that had made it is gone
    second = keep_to_loopback({}).library
    assert second is not None
    assert second.is_file()
    assert list(tmp_path.iterdir()) == []


SOCKETS = """
import socket
held = socket.socket(socket.AF_INET6)
held.bind(("::1", 0))
port = held.getsockname()[1]

def bound(family, host, kind=socket.SOCK_STREAM, only=None, port=port):
    made = socket.socket(family, kind)
    if only is not None:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
    made.bind((host, port))
    print(made.getsockname()[0])
    made.close()

bound(socket.AF_INET, "")
bound(socket.AF_INET6, "::", only=0)
bound(socket.AF_INET6, "::ffff:0.0.0.0", only=0)
held.close()
bound(socket.AF_INET6, "::", only=1)
bound(socket.AF_INET, "127.0.0.2")
bound(socket.AF_INET, "", socket.SOCK_DGRAM)
bound(socket.AF_INET, "", port=0)
for server in (socket.create_server(("", 0)), socket.socket()):
    server.listen()
    print(server.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).decode().rstrip(chr(0)))
    socket.create_connection(("127.0.0.1", server.getsockname()[1])).close()
"""


def test_the_library_changes_servers_only() -> None:
    loopback = keep_to_loopback({LOOPBACK: "preload"})
    ended = subprocess.run(
        [sys.executable, "-c", SOCKETS], env=loopback.environment(os.environ), capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    kept = ["127.0.0.1", "::ffff:127.0.0.1", "::ffff:127.0.0.1", "::1"]
    others = ["127.0.0.2", "0.0.0.0", "0.0.0.0"]
    version = tuple(map(int, os.uname().release.split(".")[:2]))
    device = "lo" if version >= (5, 7) or os.getuid() == 0 else ""
    assert ended.stdout.splitlines() == [*kept, *others, device, device]


def test_a_port_of_another_process_does_not_rule_out_the_library() -> None:
    """The test of the library takes a port that others may have: it tries again."""
    made = []

    class Socket(socket.socket):
        def bind(self, address: tuple[str, int]) -> None:
            made.append(address[0])
            if made.count("") in (1, 2) and address[0] == "":
                raise OSError(errno.EADDRINUSE, "Address already in use")
            super().bind((address[0] or "127.0.0.1", address[1]))

    said: list[str] = []
    exec(  # what a process of its own runs
        loopback._PROBE.replace("import socket", ""),
        {"socket": SimpleNamespace(socket=Socket), "print": said.append},
    )
    assert said == ["127.0.0.1"]
    assert made.count("") == 3


def test_what_the_user_preloads_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = keep_to_loopback({LOOPBACK: "preload"}).library
    loopback = Loopback("preload", library=library)
    for user in (None, "libm.so.6", "libm.so.6 libdl.so.2:libc.so.6"):
        given = {} if user is None else {"LD_PRELOAD": user}
        env = loopback.environment(given)
        assert env.pop("LD_PRELOAD") == ":".join(filter(None, [user, str(library)]))
        assert env == {"NCCL_SOCKET_IFNAME": "lo"}
        monkeypatch.setenv("LD_PRELOAD", loopback.environment(given)["LD_PRELOAD"])
        for _ in range(2):
            restore_preload()
            assert os.environ.get("LD_PRELOAD") == user
    assert loopback.environment({"NCCL_SOCKET_IFNAME": "eth1"})["NCCL_SOCKET_IFNAME"] == "eth1"


@pytest.mark.parametrize(
    ("env", "warned"),
    [
        ({}, False),
        ({"UCX_TLS": "self,posix,cma", "FI_PROVIDER": "shm"}, False),
        ({"UCX_TLS": "tcp,self"}, True),
        ({"FI_PROVIDER": "tcp"}, True),
        ({"FI_PROVIDER": "tcp", LOOPBACK: "none"}, False),  # the user has said that it may be open
    ],
)
def test_the_user_is_told_of_a_network_of_their_own_choice(
    env: dict[str, str], warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    processes = local_cluster(1, env=env).start([sys.executable, "-c", ""], tmp_path)
    stop(processes)
    name, value = next(iter(env.items())) if warned else ("", "")
    assert caplog.messages == warned * [
        f"With {name}={value} in `env` other machines may reach the workers, and disturb the job. Leave it "
        'out, or pass env={"TFDISTR_LOOPBACK": "namespace"} too.'
    ]
