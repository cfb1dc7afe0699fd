"""Ranks that wait for a late one before they start MPI."""

import re
import socket
import time

import pytest
from clusters import run_cluster

from tfdistr.collectives.mpi import world


def test_a_rank_that_waits_leaves_its_core_to_others():
    (ended,) = run_cluster("mpi_start.py", 2, ["come", "60"], ["late", "60"], timeout=60, mpi=True)
    assert ended.status == 0, ended.output
    waited, used = re.search(r"come: 2 ranks after (\S+) s, (\S+) s", ended.output).groups()
    assert float(waited) > 2
    assert float(used) < float(waited) / 2


@pytest.fixture
def as_rank(monkeypatch):
    """Have this process be rank 0, with what the launcher says of the numbers of ranks."""

    def be(ranks: int, on_this_host: int) -> None:
        monkeypatch.setattr(world, "job_name", lambda: "job-of-a-test")
        monkeypatch.setattr(world, "launcher_of", lambda: ("PMI_RANK", 0, ranks, on_this_host))
        monkeypatch.setattr(world, "_shown", [])

    return be


def test_ranks_of_several_hosts_meet_in_mpi(as_rank, monkeypatch):
    as_rank(ranks=4, on_this_host=2)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
    world.meet()


def test_ranks_that_cannot_see_each_other_go_on(as_rank, monkeypatch):
    as_rank(ranks=2, on_this_host=2)
    monkeypatch.setattr(world, "_LONGEST", 0.2)
    began = time.monotonic()
    world.meet()
    assert time.monotonic() - began >= 0.2


def test_a_name_that_is_taken_is_no_reason_to_wait(as_rank, monkeypatch):
    as_rank(ranks=2, on_this_host=2)
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("it waits"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(world._name("job-of-a-test", 0))
        world.meet()
