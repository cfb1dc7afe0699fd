"""The cluster that a task of Slurm derives from what Slurm tells it, as recorded from Slurm 22.05."""

import os
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import assert_says, refusal

import tfdistr
from tfdistr.errors import ClusterConfigError
from tfdistr.rendezvous import slurm_step
from tfdistr.rendezvous.config import ClusterConfig
from tfdistr.rendezvous.launcher_ranks import place_on_host
from tfdistr.rendezvous.meeting import cluster_to_join
from tfdistr.rendezvous.slurm_step import (
    PORT,
    expand_counts,
    expand_hostlist,
    is_slurm_task,
    place_in_step,
    place_on_node,
    slurm_cluster_from_env,
)
from tfdistr.utils.processes import ProgramEnd

#: `scontrol --oneliner show node n[9-11]`, shortened; n11 has no address of its own.
NODES = """\
NodeName=n9 Arch=x86_64 CoresPerSocket=4 Gres=(null) NodeAddr=10.0.0.9 NodeHostName=n9 Port=17848
NodeName=n10 Arch=x86_64 CoresPerSocket=4 Gres=(null) NodeAddr=10.0.0.10 NodeHostName=n10 Port=17849
NodeName=n11 Arch=x86_64 CoresPerSocket=4 Gres=(null) NodeAddr=n11 NodeHostName=n11 Port=17850
"""
#: A task of `srun -N3 -n5 -m cyclic`: ranks 0 and 3 are on n9, 1 and 4 on n10, 2 on n11.
TASK = {
    "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "3", "SLURM_STEP_NODELIST": "n[9-11]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2),1", "SLURM_STEP_NUM_TASKS": "5", "SLURM_NTASKS": "5",
    "SLURM_PROCID": "4", "SLURM_NODEID": "1", "SLURM_LOCALID": "1",
}  # fmt: skip
PLAIN = ("SLURM_", "PMI_", "PMIX_", "OMPI_", "TF_CONFIG", "MPI_LOCAL", PORT)
Tell = Callable[..., None]


@pytest.fixture(autouse=True)
def tell(monkeypatch: pytest.MonkeyPatch) -> Tell:
    """A function that makes this process one with these variables; first it is TASK."""
    monkeypatch.setattr(slurm_step, "run_program", lambda command, timeout: ProgramEnd(NODES, None))
    slurm_step.node_addresses.cache_clear()

    def tell(environ: Mapping[str, str]) -> None:
        for name in [name for name in os.environ if name.startswith(PLAIN)]:
            monkeypatch.delenv(name)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)

    tell(TASK)
    return tell


def derived() -> ClusterConfig:
    """The cluster of this task."""
    config = slurm_cluster_from_env()
    assert config is not None
    return config


def test_a_task_is_the_worker_after_the_tasks_of_the_nodes_before_it() -> None:
    config = derived()
    first = int(config.addresses[0].rpartition(":")[2])
    hosts = ["10.0.0.9", "10.0.0.9", "10.0.0.10", "10.0.0.10", "n11"]
    assert config.addresses == tuple(f"{host}:{first + i}" for i, host in enumerate(hosts))
    assert (config.worker_index, config.num_workers, config.is_chief) == (3, 5, False)
    assert 16_000 <= first < 31_000


def test_all_tasks_of_a_step_have_the_same_addresses_and_each_its_own_index(tell: Tell) -> None:
    tasks = []
    for rank, node, local in ("000", "110", "220", "301", "411"):
        tell(TASK | {"SLURM_PROCID": rank, "SLURM_NODEID": node, "SLURM_LOCALID": local})
        tasks.append(derived())
    assert [task.worker_index for task in tasks] == [0, 2, 4, 1, 3]
    assert len({task.addresses for task in tasks}) == 1
    assert tasks[0].is_chief


def test_steps_jobs_and_restarts_have_ports_of_their_own(tell: Tell) -> None:
    ports: set[str] = set()
    for other in ({}, {"SLURM_STEP_ID": "4"}, {"SLURM_JOB_ID": "13"}, {"SLURM_RESTART_COUNT": "1"}):
        tell(TASK | other)
        own = {address.rpartition(":")[2] for address in derived().addresses}
        assert len(own - ports) == 5
        ports |= own


def test_the_first_port_can_be_chosen(tell: Tell) -> None:
    tell(TASK | {PORT: "2222"})
    assert derived().addresses[::4] == ("10.0.0.9:2222", "n11:2226")


@pytest.mark.parametrize(
    ("said", "hosts"),
    [
        (ProgramEnd("", "scontrol: No such file or directory"), ["n9", "n9", "n10", "n10", "n11"]),
        (
            ProgramEnd("NodeName=n9 NodeAddr=fd00::9 Port=1\n", None),
            ["[fd00::9]"] * 2 + ["n10"] * 2 + ["n11"],
        ),
    ],
)
def test_a_node_without_an_address_is_reached_by_its_name(
    said: ProgramEnd, hosts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_step, "run_program", lambda command, timeout: said)
    assert [address.rpartition(":")[0] for address in derived().addresses] == hosts


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (TASK, (3, 5)),
        (TASK | {"PMI_RANK": "4", "PMI_SIZE": "5", "PMI_FD": "11"}, (3, 5)),  # srun --mpi=pmi2
        (TASK | {"PMIX_RANK": "4"}, (3, 5)),  # srun --mpi=pmix
        (TASK | {"PMI_RANK": "1", "PMI_SIZE": "2"}, None),  # mpiexec in a task
        (TASK | {"OMPI_COMM_WORLD_RANK": "4", "OMPI_COMM_WORLD_SIZE": "5"}, None),
        (TASK | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "1"}, None),  # srun -n 1
        (TASK | {"SLURM_STEP_ID": "4294967291"}, None),  # the shell of sbatch
        (TASK | {"SLURM_STEP_ID": "4294967290"}, None),  # the shell of salloc
        ({}, None),
    ],
)
def test_who_is_a_task(environ: dict[str, str], expected: tuple[int, int] | None, tell: Tell) -> None:
    tell(environ)
    assert is_slurm_task() == (expected is not None)
    assert place_in_step() == expected
    config = slurm_cluster_from_env()
    assert (config and (config.worker_index, config.num_workers)) == expected


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({}, (1, 2)),
        ({"SLURM_NODEID": "2", "SLURM_LOCALID": "0"}, (0, 1)),
        ({"SLURM_GPUS_PER_TASK": "1"}, None),  # it has its own
        ({"SLURM_LOCALID": "7"}, None),  # the error comes with the cluster
        ({"SLURM_STEP_ID": "4294967291"}, None),
    ],
)
def test_the_place_on_a_node_decides_which_gpu_a_task_takes(
    changed: dict[str, str], place: tuple[int, int] | None, tell: Tell
) -> None:
    tell(TASK | changed)
    assert place_on_node() == place


def test_tf_config_comes_before_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = cluster_to_join()
    assert joined
    assert joined.num_workers == 5
    monkeypatch.setenv(
        "TF_CONFIG", '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'
    )
    joined = cluster_to_join()
    assert joined
    assert joined.addresses == ("a:1",)


def test_the_place_of_a_task_is_known_before_there_is_a_strategy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfdistr.strategies.rank._own_strategy", [])
    assert (tfdistr.worker_index(), tfdistr.num_workers(), tfdistr.is_chief()) == (3, 5, False)
    monkeypatch.setenv("PMI_RANK", "4")  # with --mpi, MPI has the ranks of Slurm
    monkeypatch.setenv("PMI_SIZE", "5")
    assert (tfdistr.worker_index(), tfdistr.num_workers(), tfdistr.is_chief()) == (4, 5, False)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        *(({name: ""}, ["A task of a Slurm step must have the", "Received: a task without it"])
          for name in ("SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID", "SLURM_JOB_ID")),
        *(({PORT: text}, [f"The environment variable {PORT}", f'Received: "{text}"'])
          for text in ("0", "65535", "http")),
        ({"SLURM_NODEID": "one"}, ["The environment variable SLURM_NODEID of a", 'Received: "one"']),
        ({"SLURM_NODEID": "2"},
         ["SLURM_NODEID and SLURM_LOCALID must be", "Received: node 2, task 1 there, and the tasks 2(x2),1"]),
        ({"SLURM_STEP_NODELIST": "n[9-10]"},
         ["SLURM_STEP_NODELIST and", 'Received: 2 nodes in "n[9-10]", 3 in "2(x2),1"']),
    ],
)  # fmt: skip
def test_variables_that_do_not_fit(changed: dict[str, str], said: list[str], tell: Tell) -> None:
    tell(TASK | changed)
    assert_says(refusal(ClusterConfigError, slurm_cluster_from_env), said)


@pytest.mark.parametrize("text", ["", ",", "n[1-", "n1]", "n[a-b]", "n[3-1]", "n[]", "n[1[2]]"])
def test_a_list_of_hosts_that_is_none(text: str) -> None:
    with pytest.raises(ClusterConfigError, match="A node list must have the form that Slurm") as caught:
        expand_hostlist(text)
    assert caught.value.received == f'"{text}"'


@pytest.mark.parametrize("text", ["", "2(x3", "two", "1,,2"])
def test_counts_that_are_none(text: str) -> None:
    with pytest.raises(ClusterConfigError, match="The task counts of Slurm nodes must be") as caught:
        expand_counts(text)
    assert caught.value.received == f'"{text}"'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[1,3-4,07]", ["n1", "n3", "n4", "n07"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("b2,a1", ["b2", "a1"]),
        ("r[1-2]n[0-1],login-1", ["r1n0", "r1n1", "r2n0", "r2n1", "login-1"]),
        ("gpu[1-2]-ib.site", ["gpu1-ib.site", "gpu2-ib.site"]),
    ],
)
def test_lists_of_hosts(text: str, names: list[str]) -> None:
    assert expand_hostlist(text) == names


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 50)), min_size=1, max_size=6))
def test_every_list_of_counts_gives_its_numbers(runs: list[tuple[int, int]]) -> None:
    text = ",".join(str(count) if times == 1 else f"{count}(x{times})" for count, times in runs)
    assert expand_counts(text) == [count for count, times in runs for _ in range(times)]


@given(st.text("n019[],-ab ", max_size=20))
def test_any_text_is_a_list_or_is_refused(text: str) -> None:
    try:
        names = expand_hostlist(text)
    except ClusterConfigError:
        names = ["refused"]
    assert names
    assert all(names)


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}, (1, 2)),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "4"}, (0, 4)),
        ({"MPI_LOCALRANKID": "1"}, None),
        ({}, None),
    ],
)
def test_the_place_of_an_mpi_rank_on_its_host(
    environ: dict[str, str], place: tuple[int, int] | None, tell: Tell
) -> None:
    tell(environ)
    assert place_on_host() == place
