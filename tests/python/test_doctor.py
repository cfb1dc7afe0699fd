"""`doctor()` and `tfdistr doctor`: what is wrong with a cluster, as seen from here, with a fix for each."""

import contextlib
import errno
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import PROGRAMS

import tfdistr
from tfdistr import diagnosis
from tfdistr.cli.main import run
from tfdistr.clusters.ssh.host_facts import versions_here
from tfdistr.clusters.ssh.survey import HostAnswer
from tfdistr.diagnosis import Diagnosis, Row, doctor
from tfdistr.errors import ArgumentError
from tfdistr.network.ports import free_ports

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def of_cluster(monkeypatch):
    """A function that looks at a cluster only, not at what is installed."""
    for name in ("_packages", "_mpi", "_gpus", "_r"):
        monkeypatch.setattr(diagnosis, name, lambda *_: [])

    def look(addresses: list[str], index: int = 0, **options: float) -> dict[str, Row]:
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        return {row.check: row for row in doctor(config, **options).rows}

    return look


@pytest.fixture
def waiting() -> Iterator[list[str]]:
    """The addresses of a cluster of three, of which worker 0 and worker 1 wait for the third."""
    tasks = {f"worker {i}": f"127.0.0.1:{port}" for i, port in enumerate(free_ports(3))}
    each = [{"tasks": tasks, "own": f"worker {i}", "timeout": 60} for i in range(2)]
    processes = [subprocess.Popen([sys.executable, str(PROGRAMS / "meet.py"), json.dumps(w)]) for w in each]
    try:
        for address in list(tasks.values())[:2]:
            until = time.monotonic() + 30
            while time.monotonic() < until:
                try:
                    socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))).close()
                    break
                except OSError:
                    time.sleep(0.05)
        yield list(tasks.values())
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_workers_that_wait_are_found_and_their_clocks_compared(of_cluster, waiting, monkeypatch):
    rows = of_cluster(waiting, 2)
    assert rows["TF_CONFIG"] == ("TF_CONFIG", "ok", "worker 2 of a cluster of 3 workers", "")
    assert rows[f"own port, {waiting[2]}"][1:3] == ("ok", "free")
    for i in range(2):
        found = rows[f"worker {i}, {waiting[i]}"]
        assert (found.status, found.found.partition(":")[0]) == ("ok", f"worker {i} waits there")
        assert rows[f"clock of worker {i}"].status == "ok"
    assert "waits there" in of_cluster(waiting, 1)[f"own port, {waiting[1]}"].found

    swapped = of_cluster([waiting[1], waiting[0], waiting[2]], 2)[f"worker 0, {waiting[1]}"]
    assert (swapped.status, swapped.found) == ("FAIL", "worker 1 waits there")
    assert swapped.fix == "Give all workers the same addresses."

    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    clock = of_cluster(waiting, 2)["clock of worker 0"]
    assert (clock.status, clock.found) == ("FAIL", "-3600.0 s apart")
    assert "NTP" in clock.fix


def test_what_is_wrong_with_addresses(of_cluster):
    with socket.create_server(("", 0)) as server:
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        nobody = f"127.0.0.1:{free_ports(1)[0]}"
        rows = of_cluster([taken, nobody, "no-such-host.invalid:2222"])
        own = rows[f"own port, {taken}"]
        assert (own.status, own.found) == ("FAIL", "another process listens on its port")
        assert own.fix.startswith("Stop the process that uses this task's port")
        found = rows[f"worker 1, {nobody}"]
        assert (found.status, found.found) == ("ok", "the machine is there; nobody listens yet")
        found = rows["worker 2, no-such-host.invalid:2222"]
        assert (found.status, found.found) == ("FAIL", "name does not resolve")
        assert found.fix == "Correct the name, or make it known to this machine (DNS, /etc/hosts)."
        assert rows["addresses"].status == "FAIL"  # a loopback address means another machine on each
        rows = of_cluster([nobody, taken])
        assert rows[f"worker 1, {taken}"].found.startswith("something listens there")
        assert "addresses" not in rows


def test_an_address_of_another_machine_and_one_that_does_not_answer(of_cluster):
    with contextlib.ExitStack() as held:
        # Nobody accepts, so that the kernel drops what comes once its queue is full, as a firewall would.
        full = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            waits = held.enter_context(socket.socket())
            waits.setblocking(False)
            waits.connect_ex(full.getsockname())
        silent = f"127.0.0.1:{full.getsockname()[1]}"
        elsewhere = f"192.0.2.1:{free_ports(1)[0]}"  # for documentation: no machine has it
        began = time.monotonic()
        rows = of_cluster([elsewhere, silent], timeout=1.5)
        assert time.monotonic() - began < 10
    own = rows[f"own port, {elsewhere}"]
    assert (own.status, own.found) == ("-", "free, but 192.0.2.1 is no address of this machine")
    peer = rows[f"worker 1, {silent}"]
    assert (peer.status, peer.found) == ("FAIL", "does not answer")
    assert peer.fix == "Check that the machine is on, and that no firewall blocks this port."


def test_a_port_that_is_not_for_this_user(of_cluster, monkeypatch):
    async def refused(*_: object) -> socket.socket:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(diagnosis, "listening_socket", refused)
    own = of_cluster(["127.0.0.1:443"])["own port, 127.0.0.1:443"]
    assert (own.status, own.found) == ("FAIL", "Permission denied")
    assert own.fix == "Give the task a port that this user may listen on."


def test_an_evaluator_that_the_cluster_does_not_list(of_cluster):
    address = f"127.0.0.1:{free_ports(1)[0]}"
    rows = doctor({"cluster": {"worker": [address]}, "task": {"type": "evaluator", "index": 0}}).rows
    assert [(row.check, row.status) for row in rows] == [("TF_CONFIG", "ok"), (f"worker 0, {address}", "ok")]


def test_a_task_of_slurm_is_looked_at_as_one_of_its_step(of_cluster, monkeypatch):
    task = {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "1",
            "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_NODEID": "0", "SLURM_LOCALID": "1",
            "SLURM_STEP_NODELIST": "localhost"}  # fmt: skip
    for name, value in task.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert doctor().rows[0] == Row("Slurm", "ok", "worker 1 of a cluster of 2 workers")
    monkeypatch.delenv("SLURM_LOCALID")
    assert doctor().rows[0] == Row(
        "Slurm", "FAIL",
        "A task of a Slurm step must have the environment variable SLURM_LOCALID. Received: a task without "
        "it",
        "Start the script by srun itself, without --export=NONE, or set TF_CONFIG.",
    )  # fmt: skip


def test_a_config_that_is_not_valid_is_a_row(monkeypatch, of_cluster):
    first = doctor('{"cluster": {"worker": ["a"]}, "task": {"type": "worker", "index": 0}}').rows[0]
    assert (first.status, first.fix) == ("FAIL", 'Add the port that this task listens on, like "a:2222".')
    assert first.found == '`cluster.worker[0]` must have a port. Received: "a"'
    monkeypatch.setenv("TF_CONFIG", "")
    assert doctor().rows[0].status == "-"


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"timeout": 0}, "`timeout` must be a number of seconds above 0."),
        ({"hosts": []}, "`hosts` must be a list of at least one host."),
        ({"hosts": ["a", 3]}, "`hosts` must be names or addresses, as text."),
        ({"hosts": ["-oProxyCommand=x"]}, "Each host must be a name or an address"),
        ({"hosts": ["a"], "config": "{}"}, "Give `config` or `hosts`, not both."),
        ({"hosts": ["a"], "ssh": "'"}, "`ssh` must be a program and its options, written as for a shell."),
        ({"ssh": "ssh"}, "`ssh` and `run_dir` are for `hosts`."),
    ],
)
def test_arguments(arguments, rule):
    with pytest.raises(ArgumentError) as caught:
        doctor(**arguments)
    assert caught.value.message.startswith(rule)


def fake_ssh(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "ssh").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "ssh").chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_hosts_are_reached_by_ssh(tmp_path, monkeypatch, of_cluster):
    # As the real one, it hands its last argument to a shell.
    fake_ssh(tmp_path, 'for last; do :; done; exec sh -c "$last"', monkeypatch)
    monkeypatch.chdir(tmp_path)
    rows = {row.check: row for row in doctor(hosts=["localhost", "me@127.0.0.1"]).rows}
    assert set(rows) == {
        "hosts", "version of Python", "version of tfdistr", "version of TensorFlow", "version of Keras",
        "clocks", "names of the hosts", "free ports", "cores", "free memory", "run directory",
    }  # fmt: skip
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows["hosts"].found == "localhost and me@127.0.0.1: ssh lets this user in, and Python is there"
    assert rows["version of tfdistr"].found == f"{tfdistr.__version__} on this machine and on each host"
    assert rows["cores"].found == f"{len(os.sched_getaffinity(0))} on localhost and me@127.0.0.1"
    assert rows["run directory"].found == f"each host sees {tmp_path}"
    assert [path.name for path in tmp_path.iterdir()] == ["ssh"]
    for script, found, fix in (
        ("echo denied >&2; exit 255", "denied", "Let this user in without a password: ssh a true."),
        ("echo not found >&2; exit 127", "not found", f"The same Python must be at this path on that host: "
                                                      f"{sys.executable}."),
        ("exec sleep 60", "no answer within 1 s", "Let this user in without a password: ssh a true."),
    ):  # fmt: skip
        fake_ssh(tmp_path, script, monkeypatch)
        (row,) = doctor(hosts=["a"], timeout=1 if "sleep" in script else 20).rows
        assert row == ("host a", "FAIL", found, fix)


def test_the_versions_of_r_are_compared_in_r(tmp_path, monkeypatch, of_cluster):
    fake_ssh(tmp_path, 'for last; do :; done; FAR=1 exec sh -c "$last"', monkeypatch)
    rscript = tmp_path / "Rscript"
    rscript.write_text('#!/bin/sh\nprintf "4.$((2 + ${FAR:-0})).0\\n1.41\\n"\n')
    rscript.chmod(0o700)
    rows = {row.check: row for row in doctor(hosts=["localhost"], rscript=str(rscript)).rows}
    assert (rows["version of R"].status, rows["version of R"].found) == (
        "FAIL", "4.2.0 on this machine, 4.3.0 on localhost",
    )  # fmt: skip
    assert rows["version of reticulate"].status == "ok"
    package = rows["version of the R package tfdistr"]
    assert (package.status, package.found) == ("FAIL", "not installed on this machine and localhost")


def test_hosts_that_differ(tmp_path, monkeypatch, of_cluster):
    here = versions_here(None)
    other = here | {"version of Keras": "3.0.0"}
    alike = {"versions": here, "sees_marker": True, "unresolved": [], "ports": [1]}
    alike |= {"cores": 8, "memory": 1 << 33}
    answers = [
        HostAnswer("a", alike),
        HostAnswer("b", alike | {"versions": other, "sees_marker": False}, ahead=-9.0),
        HostAnswer(
            "c", alike | {"unresolved": ["a", "b"], "ports": [], "cores": 4, "memory": None}, ahead=5.0
        ),
        HostAnswer("d", failure="denied", fix="Let me in."),
    ]
    monkeypatch.setattr(diagnosis, "ask_hosts", lambda hosts, **_: answers)
    found = doctor(hosts=["a", "b", "c", "d"], run_dir=tmp_path)
    rows = {row.check: row for row in found.rows}
    keras = here["version of Keras"]
    same = "Install the same version on every host and on this machine."
    expected = {
        "host d": ("FAIL", "denied", "Let me in."),
        "hosts": ("ok", "a, b and c: ssh lets this user in, and Python is there", ""),
        "version of Keras": ("FAIL", f"{keras} on this machine, a and c, 3.0.0 on b", same),
        "clocks": ("FAIL", "-9.0 s on b, +5.0 s on c", "Set the clocks by NTP: logs could not be compared."),
        "names of the hosts": (
            "FAIL", "c does not know a and b",
            'Pass addresses, like hosts=["10.0.0.1", "10.0.0.2"], or make the names known there (DNS, '
            "/etc/hosts).",
        ),
        "free ports": ("FAIL", "none found on c",
                       "Install tfdistr there, and stop programs that listen on many ports."),
        "cores": ("ok", "8 on a and b, 4 on c", ""),
        "free memory": ("ok", "8.0 GiB on a and b, not known on c", ""),
        "run directory": ("FAIL", f"{tmp_path} does not exist on b",
                          "Pass `run_dir`, a folder of a file system that the hosts share."),
    }  # fmt: skip
    assert {name: rows[name][1:] for name in expected} == expected
    assert not found.ok
    none = {row.check: row for row in doctor(hosts=["a"], run_dir=tmp_path / "none").rows}["run directory"]
    assert (none.status, none.found) == ("-", f"{tmp_path / 'none'}: this user cannot write there")


def test_what_is_installed(monkeypatch):
    rows = {row.check: row for row in diagnosis._packages()}
    assert all(rows[name].status == "ok" for name in ("Python", "tfdistr", "tensorflow", "keras", "numpy"))
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "1")
    monkeypatch.setattr(diagnosis, "version_of", lambda name, *others: {"keras": "2.15.0"}.get(name))
    failed = {row.check: row.fix for row in diagnosis._packages() if row.status == "FAIL"}
    assert set(failed) == {"tensorflow", "keras", "numpy", "KERAS_BACKEND", "TF_USE_LEGACY_KERAS"}
    assert failed["tensorflow"] == "pip install tensorflow"
    assert diagnosis._mpi(20)[0].status == "-"


def test_what_other_programs_say(monkeypatch, tmp_path):
    assert diagnosis._mpi(60)[0].status == "ok"
    monkeypatch.setattr(diagnosis, "PRINT_LIBRARY", "print('Open MPI v5.0.8')")
    assert diagnosis._mpi(60)[0].found.endswith("Open MPI v5.0.8: joined workers use the ring")
    monkeypatch.setattr(diagnosis, "PRINT_LIBRARY", "raise SystemExit('no library')")
    assert diagnosis._mpi(60)[0].found.endswith(": no library")

    program = tmp_path / "Rscript"
    for lines, statuses in (
        ("4.5.0\n1.28\n0.0.9", {"R": "ok", "reticulate": "FAIL", "R package tfdistr": "FAIL"}),
        ("4.5.0\n1.41.0.1\n" + tfdistr.__version__,
         {"R": "ok", "reticulate": "ok", "R package tfdistr": "ok"}),
        ("4.5.0\n\n", {"R": "ok", "reticulate": "-"}),
        ("", {"R": "FAIL"}),
    ):  # fmt: skip
        program.write_text(f"#!/bin/sh\nprintf '%s' '{lines}'\n")
        program.chmod(0o700)
        assert {row.check: row.status for row in diagnosis._r(str(program), 20)} == statuses
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert diagnosis._r(None, 20)[0].status == "-"
    assert diagnosis._r(str(tmp_path / "no"), 20)[0].status == "FAIL"

    monkeypatch.setattr(diagnosis, "visible_gpus", lambda env: ("0", "1"))
    monkeypatch.setattr(diagnosis, "_TENSORFLOW", "print('[\"GPU:0\"]')")
    assert [row.status for row in diagnosis._gpus(60)] == ["ok", "FAIL"]
    monkeypatch.setattr(diagnosis, "visible_gpus", lambda env: ("MIG-a", "MIG-b"))  # a process sees one
    assert [row.status for row in diagnosis._gpus(60)] == ["ok", "ok"]
    monkeypatch.setattr(diagnosis, "_TENSORFLOW", "raise ImportError('a library is missing')")
    (row,) = diagnosis._gpus(60)
    assert (row.status, row.found) == ("FAIL", "ImportError: a library is missing")


def test_the_table():
    found = Diagnosis([Row("a", "ok", "fine"), Row("long", "FAIL", "broken", "Repair it.")])
    assert not found.ok
    assert str(found).splitlines() == [
        "a     ok    fine",
        "long  FAIL  broken",
        "            Fix: Repair it.",
        "1 of 2 checks failed.",
    ]
    assert "\033[31mlong  FAIL  broken\033[0m" in found.table(color=True)
    assert str(Diagnosis([Row("a", "ok", "fine")])).splitlines()[-1] == "All checks passed."
    assert list(found.to_frame().columns) == ["check", "status", "found", "fix"]


def test_the_command_says_it_with_its_status(of_cluster, tmp_path, capsys):
    file = tmp_path / "tf_config.json"
    plan = tfdistr.tf_config(worker=[f"127.0.0.1:{port}" for port in free_ports(2)])
    file.write_text(plan[0].to_json())
    assert run(["doctor", str(file)]) == 0
    assert capsys.readouterr().out.endswith("\nAll checks passed.\n")
    assert run(["doctor", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["status"] == "ok"
    file.write_text("{")
    assert run(["doctor", str(file)]) == 1
    assert run(["doctor", str(tmp_path / "none")]) == 2
    assert "The file with TF_CONFIG must be one that can be read." in capsys.readouterr().err
    assert run(["doctor", "--timeout", "-1"]) == 2
    with pytest.raises(SystemExit) as caught:
        run(["doctor", "--nonsense"])
    assert caught.value.code == 2


def test_all_of_it_without_tensorflow_in_this_process():
    code = (
        "import os, sys, tfdistr\n"
        "os.environ['TF_CONFIG'] = ''\n"
        "found = tfdistr.doctor()\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
        "print({row.check: row.status for row in found.rows}['import tensorflow'])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=170)
    assert (ended.stdout, ended.stderr) == ("ok\n", "")
