"""mpi_cluster(): its arguments, and the command that starts the workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfdistr
from tfdistr.errors import ArgumentError, ClusterStartError
from tfdistr.jobs.run_dir import open_run_dir, temporary_run_dir
from tfdistr.launch.mpi_cluster import mpi_cluster
from tfdistr.launch.mpiexec import command_line

pytestmark = pytest.mark.timeout(240)

def test_the_defaults() -> None:
    cluster = mpi_cluster(["a", "b"])
    assert (cluster.hosts, cluster.workers_per_host, cluster.workers) == (("a", "b"), 1, 2)
    assert (cluster.env, cluster.follow, cluster.start_timeout, cluster.ssh) == ({}, False, 300.0, None)
    assert mpi_cluster(("a", "10.0.0.2"), np.int64(3)).workers == 6
    assert hash(cluster) == hash(mpi_cluster(["a", "b"]))


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        (None, "`hosts` must be a list of at least one host."),
        ("a", "`hosts` must be a list of at least one host."),
        ([], "`hosts` must be a list of at least one host."),
        ([1, "b"], "`hosts` must be names or addresses, as text."),
        (["a", ""], "Each host must be a name or an address"),
        (["a b"], "Each host must be a name or an address"),
        (["a,b"], "Each host must be a name or an address"),
        (["-oProxyCommand=x"], "Each host must be a name or an address"),
        (["a", "b", "a"], "`hosts` must name each host once"),
    ],
)
def test_hosts_are_names(values: Any, rule: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        mpi_cluster(values)
    message = str(caught.value)
    assert message.startswith(rule)
    assert message.splitlines()[2] == 'Fix: Pass hosts=["a", "b"], for example.'


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"workers_per_host": 0}, "`workers_per_host` must be a whole number of at least 1."),
        ({"workers_per_host": 1.5}, "`workers_per_host` must be a whole number of at least 1."),
        ({"env": {"A": 1}}, "`env` must give A a value that is text."),
        ({"env": {"TF_CONFIG": "{}"}}, "`env` must not set TF_CONFIG"),
        ({"follow": 1}, "`follow` must be true or false."),
        ({"start_timeout": 0}, "`start_timeout` must be a number of seconds above 0."),
        ({"ssh": ""}, "`ssh` must be a program and its options, written as for a shell."),
        ({"ssh": "ssh -F 'x"}, "`ssh` must be a program and its options, written as for a shell."),
        ({"ssh": 3}, "`ssh` must be a program and its options, written as for a shell."),
    ],
)
def test_other_arguments(arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        mpi_cluster(["a"], **arguments)
    assert str(caught.value).startswith(rule)
    assert "\nReceived: " in str(caught.value)
    assert "\nFix: " in str(caught.value)


@pytest.mark.parametrize("communication", ["ring", "nccl"])
def test_only_mpi_goes_with_it(communication: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        tfdistr.distributed_fit(
            lambda: None, np.ones((2, 1)), cluster=mpi_cluster(["a"]), communication=communication
        )
    assert str(caught.value).splitlines() == [
        "The workers of mpi_cluster() communicate by MPI.",
        f"Received: communication={communication!r}",
        'Fix: Pass communication="mpi", or leave it out.',
    ]


def test_the_run_directory_is_where_other_hosts_may_see_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = temporary_run_dir(mpi_cluster(["a"]))
    assert folder.parent == tmp_path
    assert folder.name.startswith("tfdistr-")
    assert temporary_run_dir(tfdistr.local_cluster(2)).parent != tmp_path
    with open_run_dir("run", mpi_cluster(["a"])) as folder:
        assert folder == tmp_path / "run"


# --- The command

HYDRA = "HYDRA build details:\n    Version:                                 5.0.2\n"
OPEN_MPI = "mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org/community/help/\n"


def test_the_command_of_mpich() -> None:
    local = "-launcher fork -localhost 127.0.0.1"
    begin = "m -disable-auto-cleanup -rmk user -n"
    assert " ".join(command_line("m", HYDRA, 3, root=True)) == f"{begin} 3 {local}"
    assert (
        " ".join(command_line("m", HYDRA, 4, ["a", "b"])) == f"{begin} 4 -launcher ssh -hosts a,b -ppn 2"
    )
    assert " ".join(command_line("m", HYDRA, 2, ["a", "b"], ssh=["/my/ssh"])) == (
        f"{begin} 2 -launcher ssh -launcher-exec /my/ssh -hosts a,b -ppn 1"
    )


@pytest.mark.parametrize("version", [OPEN_MPI, "mpirun (Open MPI) 5.0.6\n", "prterun (PRRTE) prte 3.0\n"])
def test_the_command_of_open_mpi(version: str) -> None:
    options = "--bind-to none --oversubscribe --host"
    assert " ".join(command_line("m", version, 3)) == f"m {options} localhost:3 -n 3"
    assert " ".join(command_line("m", version, 4, ["a", "b"], root=True)) == (
        f"m --allow-run-as-root {options} a:2,b:2 -n 4"
    )
    assert command_line("m", version, 2, ["a"], ssh=["ssh", "-F", "my config"])[-5:] == [
        "--mca", "plm_rsh_agent", "ssh -F 'my config'", "-n", "2",
    ]  # fmt: skip


@pytest.mark.parametrize(("version", "shown"), [("Intel(R) MPI\nmore", "Intel(R) MPI"), ("", "nothing")])
def test_other_launchers_are_refused(version: str, shown: str) -> None:
    with pytest.raises(ClusterStartError) as caught:
        command_line("/opt/mpiexec", version, 2)
    assert str(caught.value).splitlines() == [
        "mpiexec must be that of MPICH or of Open MPI.",
        f"Received: /opt/mpiexec, which says of itself: {shown}",
        "Fix: pip install 'tfdistr[mpi]' for MPICH, or start the script itself with your launcher.",
    ]
