"""PMI-1, as ranks of MPICH speak it; test_mpi_join.py has real ranks."""

import pytest

from tfdistr.collectives.mpi.joining import PmiError, PmiServer, process_mapping


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([0], "(vector,(0,1,1))"),
        ([0, 0], "(vector,(0,1,2))"),
        ([0, 1, 2], "(vector,(0,1,1),(1,1,1),(2,1,1))"),
        ([0, 0, 1, 0], "(vector,(0,1,2),(1,1,1),(0,1,1))"),
    ],
    ids=["one", "a node", "three nodes", "mixed"],
)
def test_which_ranks_are_on_which_node(nodes, expected):
    assert process_mapping(nodes) == expected
    get = "cmd=get kvsname=job key=PMI_process_mapping"
    said = {0: f"cmd=get_result rc=0 msg=success value={expected}"}
    assert PmiServer("job", nodes).answer(0, get) == said


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("cmd=init pmi_version=1 pmi_subversion=1",
         "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
        ("cmd=init pmi_version=2 pmi_subversion=0",
         "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1"),
        ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=2048"),
        ("cmd=get_appnum", "cmd=appnum appnum=0"),
        ("cmd=get_universe_size", "cmd=universe_size size=2"),
        ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=job"),
        ("cmd=get kvsname=job key=a", "cmd=get_result rc=-1 msg=key_not_found value=unknown"),
        ("cmd=finalize", "cmd=finalize_ack"),
    ],
    ids=lambda text: text.split()[0] if text.startswith("cmd") else "",
)  # fmt: skip
def test_answers(line, answer):
    assert PmiServer("job", [0, 0]).answer(1, line) == {1: answer}


def test_what_one_rank_puts_the_other_gets_after_the_barrier():
    server = PmiServer("job", [0, 1])
    put = server.answer(0, "cmd=put kvsname=job key=a value=x y=[8]")
    assert put == {0: "cmd=put_result rc=0 msg=success"}
    assert server.answer(0, "cmd=barrier_in") == {}
    assert server.answer(0, "cmd=barrier_in") == {}  # it does not count twice
    assert server.answer(1, "cmd=barrier_in") == {0: "cmd=barrier_out", 1: "cmd=barrier_out"}
    got = server.answer(1, "cmd=get kvsname=job key=a")
    assert got == {1: "cmd=get_result rc=0 msg=success value=x y=[8]"}
    assert server.answer(0, "cmd=barrier_in") == {}  # the next one


@pytest.mark.parametrize(
    "line",
    ["", "x", "cmd=", "cmd=spawn", "cmd=__init__", "cmd=answer", "put value=1", "cmd=put value=1",
     f"cmd=put key={'k' * 65} value=1", f"cmd=put key=k value={'v' * 2049}", "\0" * 100],
    ids=["empty", "word", "no name", "unknown", "method", "own", "no command", "no key", "long key",
         "long value", "garbage"],
)  # fmt: skip
def test_what_no_rank_would_send(line):
    with pytest.raises(PmiError):
        PmiServer("job", [0, 0]).answer(0, line)


def test_a_rank_has_a_limited_number_of_keys():
    server = PmiServer("job", [0, 0])
    for number in range(256):
        server.answer(0, f"cmd=put key={number} value=1")
    with pytest.raises(PmiError):
        server.answer(0, "cmd=put key=more value=1")
    server.answer(1, "cmd=put key=mine value=1")
