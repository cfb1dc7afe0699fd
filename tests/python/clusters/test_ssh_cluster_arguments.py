"""ssh_cluster(): its arguments, and what it says of hosts that are not as they must be. No host is needed."""

import logging
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import assert_says

import tfdistr
from tfdistr._version import __version__
from tfdistr.clusters.ssh import ssh_cluster as ssh_cluster_module
from tfdistr.clusters.ssh import survey
from tfdistr.clusters.ssh.host_facts import versions_here
from tfdistr.clusters.ssh.ssh_cluster import SshCluster, ssh_cluster
from tfdistr.clusters.ssh.survey import HostAnswer, ask_hosts, marker_in, name_of_host, refuse_hosts
from tfdistr.clusters.ssh.workers import Tunnels
from tfdistr.errors import ArgumentError, ClusterStartError, JobMismatchError
from tfdistr.jobs.run_dir import temporary_run_dir
from tfdistr.network.ports import free_ports
from tfdistr.utils.gpus import visible_gpus

pytestmark = pytest.mark.timeout(120)


def test_the_name_of_a_host() -> None:
    assert [name_of_host(host) for host in ("a", "me@b", "me@fe80::1")] == ["a", "b", "fe80::1"]


@pytest.mark.parametrize("host", ["ssh://a", "a/b", "a:22:"])
def test_hosts_are_addresses_by_which_hosts_reach_each_other(host: str) -> None:
    with pytest.raises(ArgumentError, match=r"Each host of ssh_cluster\(\) must be a name or") as caught:
        ssh_cluster([host])
    assert caught.value.received == f'"{host}"'


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"hosts": []}, "`hosts` must be a list of at least one host."),
        ({"hosts": ["-x"]}, "Each host must be a name or an address"),
        ({"gpus_per_worker": -1}, "`gpus_per_worker` must be a whole number of at least 0."),
        ({"ssh": "ssh -F 'x"}, "`ssh` must be a program and its options, written as for a shell."),
    ],
)
def test_other_arguments(arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        ssh_cluster(**{"hosts": ["a"], **arguments})
    assert str(caught.value).startswith(rule)


def test_what_carries_the_gradients() -> None:
    cluster = ssh_cluster(["a", "b"], workers=6)
    assert cluster.workers_per_host == 3
    assert str(cluster.backend("ring")) == "communication: ring, because the caller asked for it"
    assert str(cluster.backend("mpi")) == "communication: mpi, because the caller asked for it"
    assert cluster.backend("auto").cluster is cluster
    tunnels = ssh_cluster(["a", "b"], tunnels=True)
    assert (
        str(tunnels.backend("auto")) == "communication: ring, because ssh tunnels carry neither MPI nor NCCL"
    )
    with pytest.raises(ArgumentError, match='communication="mpi" needs connections from host') as caught:
        tfdistr.distributed_fit(
            lambda: None,
            np.ones((2, 1)),
            cluster=tunnels,
            strategy=tfdistr.multi_worker_mirrored(communication="mpi"),
        )
    assert caught.value.received == "ssh_cluster() with tunnels=True"
    with pytest.raises(ArgumentError, match='communication="nccl" needs connections from host to host'):
        tunnels.backend("nccl")
    with pytest.raises(ArgumentError, match="needs parameter servers"):
        tfdistr.distributed_fit(lambda: None, np.ones((2, 1)), cluster=cluster, strategy="parameter_server")


def test_the_run_directory_is_where_other_hosts_may_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for cluster in (ssh_cluster(["a"]), tfdistr.ray_cluster()):
        assert temporary_run_dir(cluster).parent == tmp_path


def test_a_cluster_without_the_host_of_a_worker() -> None:
    hosts = ssh_cluster(["a", "b", "c"], workers_per_host=2)
    left = hosts.without(3, 4)
    assert isinstance(left, SshCluster)
    assert left.hosts == ("a", "c")
    assert hosts.without(3, 5) is None


def program(folder: Path, script: str, name: str = "ssh") -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return str(path)


#: Hands its last argument to a shell, as ssh does, after a line that the shell of a user might print.
LIKE_SSH = 'for last; do :; done; echo Welcome; exec sh -c "$last"'


def test_what_a_host_answers(tmp_path: Path) -> None:
    with marker_in(tmp_path) as marker:
        (answer,) = ask_hosts(
            ["me@localhost"], ssh=[program(tmp_path, LIKE_SSH)], timeout=60, ports=3, marker=marker
        )
    assert not Path(marker).exists()
    assert (answer.failure, answer.ahead) == (None, 0.0)
    facts = answer.facts
    assert facts["versions"]["version of tfdistr"] == __version__
    assert facts["versions"]["version of Python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert facts["versions"]["version of Keras"].startswith("3.")
    assert Path(facts["core"]) == Path(tfdistr.__file__).parent
    assert len(set(facts["ports"])) == 3
    assert facts["sees_marker"]
    assert facts["unresolved"] == []
    assert facts["cores"] == len(os.sched_getaffinity(0))
    assert facts["memory"] > 1 << 20
    assert facts["gpus"] == list(visible_gpus({}))
    with pytest.raises(OSError, match="No such file"), marker_in(tmp_path / "none"):
        pass


def test_a_host_counts_the_gpus_that_the_user_lets_workers_see(tmp_path: Path) -> None:
    listing = program(tmp_path, 'for gpu in 0 1 2; do echo "GPU $gpu: a card"; done', "nvidia-smi")
    ssh = program(tmp_path, f"export PATH={Path(listing).parent}:$PATH; {LIKE_SSH}")
    for visible, gpus in (("2,1", ["2", "1"]), ("-1", [])):
        (answer,) = ask_hosts(["localhost"], ssh=[ssh], timeout=60, visible=visible)
        assert answer.facts["gpus"] == gpus


def test_hosts_are_asked_at_once_and_none_is_left_behind(tmp_path: Path) -> None:
    ssh = program(tmp_path, "exec sleep 60")
    began = time.monotonic()
    answers = ask_hosts(list("abcdefgh"), ssh=[ssh], timeout=1.0)
    assert time.monotonic() - began < 10
    assert {answer.failure for answer in answers} == {"no answer within 1 s"}


NO_WAY = "Let this user in without a password: ssh a true."


@pytest.mark.parametrize(
    ("script", "failure", "fix"),
    [
        ("echo denied >&2; exit 255", "denied", NO_WAY),
        ("exit 255", "ssh prints nothing, and exits with status 255", NO_WAY),
        ("echo sh: not found >&2; exit 127", "sh: not found",
         f"The same Python must be at this path on that host: {sys.executable}."),
    ],
)  # fmt: skip
def test_a_host_that_does_not_answer(tmp_path: Path, script: str, failure: str, fix: str) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    cluster = ssh_cluster(["a"], ssh=program(tmp_path, script))
    with pytest.raises(ClusterStartError) as caught:
        cluster.start(["worker"], run_dir)
    assert caught.value.received == f"a: {failure}"
    assert list(run_dir.iterdir()) == []


def test_no_ssh(tmp_path: Path) -> None:
    with pytest.raises(ClusterStartError) as caught:
        ssh_cluster(["a"], ssh=str(tmp_path / "none")).start(["worker"], tmp_path)
    assert caught.value.received == f"a: {tmp_path}/none: No such file or directory"


def test_an_interrupt_ends_the_survey(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(look: Any) -> HostAnswer:
        raise KeyboardInterrupt

    monkeypatch.setattr(survey._Query, "answer", interrupted)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ask_hosts(["a", "b"], ssh=[program(tmp_path, "exec sleep 60")], timeout=60)
    assert time.monotonic() - began < 20


def of_gpus(*gpus: str) -> dict[str, Any]:
    return {
        "versions": versions_here(None), "sees_marker": True, "unresolved": [], "ports": [1, 2],
        "core": "/core", "gpus": list(gpus),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "options", "place", "said"),
    [
        ([HostAnswer("localhost", {**of_gpus(), "ports": [12345]})], {"workers_per_host": 2},
         (0, "localhost"), ["Each host must have a free port for each", "Received: too few on localhost"]),
        ([HostAnswer("a", of_gpus("0", "1")), HostAnswer("me@b", of_gpus("0"))],
         {"workers_per_host": 2, "gpus_per_worker": 1}, (2, "me@b"),
         ["`gpus_per_worker` times the workers of a",
          "Received: me@b: 2 workers with 1 each, and 1 visible GPU (nvidia-smi,"]),
        ([HostAnswer("localhost", of_gpus())], {"ssh": "/", "warm": False}, (None, None),
         ["ssh must be a program that this machine", "Received: [Errno 13] Permission denied: '/'"]),
    ],
)  # fmt: skip
def test_hosts_on_which_workers_cannot_start(
    answers: list[HostAnswer], options: dict[str, Any], place: tuple[int, str], said: list[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(ssh_cluster_module, "ask_hosts", lambda *_, **__: answers)
    cluster = ssh_cluster([answer.host for answer in answers], **options)
    with pytest.raises(ClusterStartError) as caught:
        cluster.start([sys.executable], tmp_path)
    assert_says(caught.value, said)
    assert (caught.value.worker, caught.value.host) == place


@pytest.mark.parametrize(
    ("each", "seen"),
    [
        (2, ["0,1", "2,3", "GPU-7,GPU-8", "GPU-9,GPU-10"]),
        (0, ["-1"] * 4),
        (None, ["0", "1", "GPU-7", "GPU-8"]),
    ],
)
def test_each_worker_sees_its_own_gpus(
    each: int | None, seen: list[str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [
        HostAnswer("a", of_gpus("0", "1", "2", "3", "4")),
        HostAnswer("b", of_gpus("GPU-7", "GPU-8", "GPU-9", "GPU-10")),
    ]
    started: list[Any] = []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(ssh_cluster_module, "ask_hosts", lambda *_, **__: found)
    monkeypatch.setattr(SshCluster, "_start_all", lambda self, remotes, run_dir: started.extend(remotes))
    ssh_cluster(["a", "b"], workers=4, gpus_per_worker=each, warm=False).start([sys.executable], tmp_path)
    assert [remote.spec["env"].get("CUDA_VISIBLE_DEVICES") for remote in started] == seen


def test_tunnels_need_ports_that_are_free_on_all_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"versions": versions_here(None), "sees_marker": True, "unresolved": [], "ports": [1]}
    asked = []

    def ask(hosts: Any, *, wanted: Any, **_: Any) -> list[HostAnswer]:
        asked.append(tuple(wanted))
        return [HostAnswer("a", {**facts, "busy": []}), HostAnswer("b", {**facts, "busy": [wanted[0]]})]

    monkeypatch.setattr(ssh_cluster_module, "ask_hosts", ask)
    with pytest.raises(ClusterStartError) as caught:
        ssh_cluster(["a", "b"], tunnels=True).start([sys.executable], tmp_path)
    assert (caught.value.received, caught.value.worker, caught.value.host) == ("too few on b", 1, "b")
    assert len(set(asked)) == len(asked) == 5


def test_the_ways_of_tunnels() -> None:
    tunnels = Tunnels(ports=[1, 2, 3, 4], doors=[11, 12, 13, 14], workers_per_host=2)
    ways = [[word for word in tunnels.options(index) if word[:2] in ("-L", "-R")] for index in range(4)]
    here = "127.0.0.1"
    assert ways == [
        [f"-L{here}:11:{here}:1", f"-R{here}:3:{here}:13", f"-R{here}:4:{here}:14"],
        [f"-L{here}:12:{here}:2"],
        [f"-L{here}:13:{here}:3", f"-R{here}:1:{here}:11", f"-R{here}:2:{here}:12"],
        [f"-L{here}:14:{here}:4"],
    ]
    assert len({*(new := Tunnels.new(3, 1)).ports, *new.doors}) == 6


def test_busy_ports_are_found(tmp_path: Path) -> None:
    free, taken = free_ports(2)
    with socket.create_server(("", taken)):
        (answer,) = ask_hosts(
            ["localhost"], ssh=[program(tmp_path, LIKE_SSH)], timeout=60, wanted=[free, taken]
        )
    assert answer.facts["busy"] == [taken]


HERE = {"version of Python": "3.11", "version of TensorFlow": "2.21.0"}


def answer(host: str, **facts: Any) -> HostAnswer:
    ahead = facts.pop("ahead", 0.0)
    return HostAnswer(host, {"versions": HERE, "sees_marker": True, "unresolved": [], **facts}, ahead=ahead)


def refused(*answers: HostAnswer) -> Any:
    return refuse_hosts(answers, HERE, run_dir="/run", workers_per_host=2)


def test_versions_that_differ_are_named_before_anything_starts() -> None:
    error = refused(answer("a"), answer("b", versions={**HERE, "version of TensorFlow": "2.20.0"}),
                    answer("c", versions={**HERE, "version of TensorFlow": None}))  # fmt: skip
    assert isinstance(error, JobMismatchError)
    assert error.received == (
        "version of TensorFlow: 2.21.0 on this machine and a, 2.20.0 on b, not installed on c"
    )


def test_a_host_among_others_that_does_not_answer_is_named() -> None:
    error = refused(answer("a"), HostAnswer("b", failure="denied", fix="Let."), answer("c"))
    assert (error.received, error.fix, error.worker, error.host) == ("b: denied", "Let.", 2, "b")


def test_a_run_directory_that_a_host_does_not_see() -> None:
    error = refused(answer("a"), answer("b", sees_marker=False))
    assert "Received: /run, which does not exist on b (worker 2)" in str(error).splitlines()
    assert (error.worker, error.host) == (2, "b")


def test_names_that_hosts_do_not_know() -> None:
    error = refused(answer("a", unresolved=["a", "b"]), answer("b", unresolved=["a"]))
    assert "Received: a does not know a and b; b does not know a" in str(error).splitlines()


def test_clocks_that_differ_are_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="tfdistr"):
        assert refused(answer("a"), answer("b", ahead=-3600.0)) is None
    assert [record.getMessage() for record in caplog.records] == [
        "The clocks of hosts differ from this machine's: -3600.0 s on b. Set the clocks by NTP: logs could "
        "not be compared."
    ]
