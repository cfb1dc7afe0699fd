"""Only processes that know the token of a job take part in its rendezvous."""

import json
import threading

import pytest
from meeting import addresses, connect, outcomes, run, started

import tfdistr
from tfdistr.clusters.local.local_cluster import describe_local_cluster
from tfdistr.rendezvous.token import TOKEN, Proofs, with_token

pytestmark = pytest.mark.timeout(60)

OWN = {"token": "a token of this job"}


def test_what_python_can_read_and_not_write_proves_nothing_and_is_not_logged(capfd):
    tasks = addresses(2)

    def disturb() -> None:
        for depth in range(960, 1000):  # the limit depends on the calls before it
            nested = b"[" * depth + b"]" * depth
            with connect(tasks["worker 0"]) as sent:
                sent.sendall(b'{"proof": "x", "nonce": "y", "hello": %b}\n' % nested)

    thread = threading.Thread(target=disturb)
    thread.start()
    assert run(tasks, 0, 1, of_0=OWN, of_1=OWN | {"wait": 2}) == ["all are there"] * 2
    thread.join()
    assert "RecursionError" not in capfd.readouterr().err


@pytest.mark.parametrize("other", [{}, {"token": "another"}], ids=["none", "another"])
def test_a_worker_with_another_token_takes_no_place(other):
    tasks = addresses(2)
    leader, stranger = run(tasks, 0, 1, of_0={**OWN, "timeout": 10}, of_1=other, timeout=4)
    assert "waited for worker 1" in leader
    assert ("which has another TFDISTR_TOKEN" if other else "must have the same TFDISTR_TOKEN") in stranger


def test_workers_do_not_follow_a_leader_with_another_token():
    tasks = addresses(2)
    leader, worker = run(tasks, 0, 1, of_0={"timeout": 20}, of_1=OWN, timeout=4)
    assert f"{tasks['worker 0']}), which has another TFDISTR_TOKEN than this process, or none" in worker
    assert "all are there" not in leader


def test_forged_messages_end_nothing():
    tasks = addresses(2)
    end = {"kind": "cluster_start", "message": "Give up.", "received": "nothing", "fix": "Pay."}
    with started([{"tasks": tasks, "own": "worker 0", "timeout": 30, **OWN}]) as (leader,):
        said = {"end": end, "pass_on": True}
        first = connect(tasks["worker 0"])
        greeting = json.loads(first.makefile().readline())
        seen = Proofs(OWN["token"]).of("end", greeting["nonce"], said)  # as if it had been overheard
        hello = {"task": "worker 1", "id": "a forger", "fields": {}}
        messages = [
            said, {**said, "proof": "0" * 64}, {**said, "proof": 1}, {**said, "proof": seen},
            {"hello": hello, "nonce": "", "proof": ""}, {"hello": hello},
        ]  # fmt: skip
        for message in messages:
            with connect(tasks["worker 0"]) as stranger:
                stranger.sendall(json.dumps(message).encode() + b"\n")
                _, *answers = stranger.makefile()
                answer = "".join(answers)
                assert answer == "" or "must have the same TFDISTR_TOKEN" in answer
        first.close()
        assert run(tasks, 1, of_1=OWN) == ["all are there"]
        assert outcomes([leader])[0]["said"] == "all are there"


def test_who_cannot_join_and_knows_the_token_is_believed():
    tasks = addresses(3)
    said = run(tasks, 0, 1, of_0={**OWN, "timeout": 30}, of_1={**OWN, "timeout": 3})
    assert said[0] == said[1]
    assert f"waited for worker 2 ({tasks['worker 2']}), where nobody listens" in said[0]


def test_launchers_give_the_processes_of_a_job_one_token(monkeypatch):
    monkeypatch.delenv(TOKEN, raising=False)
    first, second = with_token([{"A": "1"}, {}])
    assert first[TOKEN] == second[TOKEN] != with_token([{}])[0][TOKEN]
    for cluster in (tfdistr.ssh_cluster(["a", "b"]), tfdistr.slurm_cluster(2)):
        tokens = {each[TOKEN] for each in cluster.environments()}
        assert len(tokens) == 1
    monkeypatch.setenv(TOKEN, "of the user")
    assert [each[TOKEN] for each in with_token([{}, {TOKEN: "of one"}])] == ["of the user", "of one"]


def test_a_local_cluster_has_a_token(monkeypatch, tmp_path):
    seen = []
    monkeypatch.delenv(TOKEN, raising=False)
    monkeypatch.setattr(
        "tfdistr.clusters.local.local_cluster.LocalCluster.start_process",
        lambda self, index, command, run_dir, config, env: seen.append(env[TOKEN]),
    )
    describe_local_cluster(2).start(["true"], tmp_path)
    assert len(seen) == 2
    assert len(set(seen)) == 1
