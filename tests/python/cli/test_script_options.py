"""The options of a script: workers and hosts, files with hosts, files with options."""

import argparse
from pathlib import Path
from typing import Any

import attrs
import pytest

from tfdistr.cli.flags import add_flags, given_flags, option, read_options, with_checks
from tfdistr.cli.kubernetes.pod_options import Pods
from tfdistr.cli.main import run
from tfdistr.cli.script_options import Script, Workers
from tfdistr.clusters.local.local_cluster import LocalCluster
from tfdistr.clusters.slurm.slurm_cluster import SlurmCluster
from tfdistr.clusters.ssh.ssh_cluster import SshCluster
from tfdistr.errors import ArgumentError
from tfdistr.utils.arguments import check_bool, check_seconds


def cluster(**options):
    return Workers(**options).cluster(follow=True, warm=False)


def test_workers_here():
    made = cluster(workers=2, cores_per_worker=1, env={"A": "1"}, start_timeout=9)
    assert isinstance(made, LocalCluster)
    assert (made.workers, made.cores_per_worker, made.env, made.start_timeout) == (2, 1, {"A": "1"}, 9.0)
    assert (made.follow, made.warm) == (True, False)
    assert cluster().workers == 2
    assert cluster(workers=3).workers == 3
    assert cluster(workers_per_host=3).workers == 3
    assert cluster(gpus_per_worker=0).gpus == ("-1", "-1")


@pytest.mark.parametrize(("workers", "each"), [(None, 1), (2, 1), (6, 3)])
def test_workers_on_hosts(workers, each):
    made = cluster(workers=workers, hosts=["a", "b"], ssh="ssh -p 22")
    assert isinstance(made, SshCluster)
    assert (made.hosts, made.workers_per_host, made.ssh) == (("a", "b"), each, "ssh -p 22")


@pytest.fixture
def allocation(monkeypatch):
    for name, value in {"ID": "7", "NODELIST": "n[9-11]", "NUM_NODES": "3", "CPUS_PER_NODE": "4(x3)"}.items():
        monkeypatch.setenv(f"SLURM_JOB_{name}", value)
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "1(x3)")


@pytest.mark.parametrize(
    ("workers", "counts"), [(None, (1, 1, 1)), (2, (1, 1)), (3, (1, 1, 1)), (6, (2, 2, 2))]
)
def test_workers_in_an_allocation(allocation, workers, counts):
    made = cluster(workers=workers, env={"A": "1"})
    assert isinstance(made, SlurmCluster)
    assert (made.counts, made.env, made.follow) == (counts, {"A": "1"}, True)


def test_hosts_and_numbers_in_an_allocation(allocation):
    assert isinstance(cluster(hosts=["a", "b"]), SshCluster)
    with pytest.raises(ArgumentError) as caught:
        cluster(workers=4)
    assert caught.value.received == "workers=4, and 3 nodes"
    assert cluster(workers_per_host=2).counts == (2, 2, 2)


@pytest.mark.parametrize(
    ("text", "hosts", "each"),
    [
        ("a\nb\n", ("a", "b"), 1),
        ("# of the lab\n\na slots=2  # big\nb slots = 2\n", ("a", "b"), 2),
        ("a:4\n[fe80::1]:4", ("a", "fe80::1"), 4),
    ],
)
def test_a_hostfile(tmp_path, text, hosts, each):
    file = tmp_path / "hosts"
    file.write_text(text)
    made = cluster(hostfile=str(file))
    assert isinstance(made, SshCluster)
    assert (made.hosts, made.workers_per_host) == (hosts, each)


def of_file(text: str) -> dict[str, Any]:
    """The options of a file with this text."""
    Path("job.toml").write_text(text)
    return read_options("job.toml", Script)


def of_hostfile(text: str, **options: Any) -> Any:
    Path("hosts").write_text(text)
    return cluster(hostfile="hosts", **options)


def script(**options: Any) -> Script:
    Path("a.py").touch()
    return Script(script="a.py", **options)


SAME = "A hostfile must have at least one host, and the same number of workers for all."
LIST = "`arguments` must be a list of text: the arguments of the script."
FIELDS = ", ".join(field.name for field in attrs.fields(Script))


@pytest.mark.parametrize(
    ("call", "rule", "received"),
    [
        (lambda: of_hostfile("a\na\n"), "Each line of a hostfile must have one host, ", "line 2 of hosts: a"),
        (lambda: of_hostfile("a slots=2\nb\n"), SAME, "a: 2, b: no number"),
        (lambda: of_hostfile("# nobody\n"), SAME, "hosts without a host"),
        (lambda: cluster(workers=4, workers_per_host=2), "`workers` must be `workers_per_host` times the ",
         "workers=4, workers_per_host=2, and 1 host"),
        (lambda: cluster(hosts=["a"], hostfile="hosts"), "Give the hosts as a list or as a file, ",
         "hosts=['a'] and hostfile='hosts'"),
        (lambda: cluster(hostfile="none"), "`hostfile` must name a file ", "none: No such file or directory"),
        (lambda: cluster(hostfile=5), "`hostfile` must be a path.", "5"),
        (lambda: script(arguments="--epochs 2"), LIST, "'--epochs 2'"),
        (lambda: script(arguments=[1]), LIST, "[1]"),
        (lambda: script(arguments=5), LIST, "5"),
        (lambda: of_file("wrokers = 4"), f"The options of a file are {FIELDS}.", "wrokers in job.toml"),
        (lambda: of_file("workers = "), "The file of `--config` must be TOML.",
         "job.toml: Invalid value (at end of document)"),
        (lambda: read_options("none", Script), "`--config` must name a file that can be read.",
         "none: No such file or directory"),
        (lambda: script(**of_file('env = "A=1"')), "`env` must map the names of environment variables to ",
         "an object of class str"),
    ],
)  # fmt: skip
def test_what_is_refused(call, rule, received, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError) as caught:
        call()
    assert caught.value.message.startswith(rule)
    assert caught.value.received == received


def test_slots_and_another_number_of_workers(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("a slots=2\nb slots=2\n")
    assert cluster(hostfile=str(file), workers=4).workers == 4
    with pytest.raises(ArgumentError) as caught:
        cluster(hostfile=str(file), workers=2)
    assert caught.value.fix == "Pass workers=4, or leave it out."
    assert cluster(hostfile=str(file), workers_per_host=3).workers == 6


ALL = """\
script = "train.py"
arguments = ["--name", 'a "quoted" word', "ü"]
workers = 4
hosts = ["a", "b"]
cores_per_worker = 1
communication = "mpi"
start_timeout = 12.5
ssh = "ssh -p 2"
run_dir = "run"
log_dir = "logs"
max_restarts = 2

[env]
A = "1"
"B.c" = "x y"
"""


def test_a_file_of_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    Path("job.toml").write_text(ALL)
    script = Script(**read_options("job.toml", Script))
    assert (script.arguments, script.env) == (("--name", 'a "quoted" word', "ü"), {"A": "1", "B.c": "x y"})
    assert (script.workers, script.start_timeout, script.max_restarts) == (4, 12.5, 2)


def test_flags_win_over_the_file(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "import os, sys, tfdistr\n"
        "print(tfdistr.num_workers(), os.environ['A'], os.environ['B'], sys.argv[1:])"
    )
    options = 'script = "train.py"\narguments = ["--x"]\nworkers = 1\n'
    Path("my.toml").write_text(f'{options}[env]\nA = "1"\nB = "2"\n')
    assert run(["run", "--config", "my.toml", "--env", "B=3"]) == 0
    assert "[worker 0] 1 1 3 ['--x']" in capfd.readouterr().out
    assert run(["run", "--config", "my.toml", "train.py", "--y"]) == 0
    assert "[worker 0] 1 1 2 ['--y']" in capfd.readouterr().out


@attrs.frozen(kw_only=True, field_transformer=with_checks)
class Wider(Script):
    nap_time: float = option(check_seconds, default=0.5, help="how long workers sleep", also=["-z"])
    loud: bool = option(check_bool, default=False, help="whether workers shout")


def test_a_new_option_is_one_field(tmp_path, capsys):
    script = tmp_path / "a.py"
    script.touch()
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    add_flags(parser, Wider)
    for words, nap_time, loud in (
        ([], 0.5, False), (["--loud", "-z", "2"], 2.0, True), (["--nap-time=4"], 4.0, False)
    ):  # fmt: skip
        made = Wider(**given_flags(parser.parse_args([*words, str(script), "--x"]), Wider))
        assert (made.nap_time, made.loud, made.arguments) == (nap_time, loud, ("--x",))
    with pytest.raises(ArgumentError, match="`nap_time` must be a number of seconds above 0"):
        Wider(script=str(script), nap_time=0)
    said = " ".join(parser.format_help().split())
    assert "--nap-time SECONDS how long workers sleep (default: 0.5)" in said
    with pytest.raises(SystemExit):
        parser.parse_args(["--nap-time", "long"])
    assert "argument -z/--nap-time: invalid float value: 'long'" in capsys.readouterr().err


@pytest.mark.parametrize(("options", "others"), [(Script, {"rscript"}), (Pods, {"_token"})])
def test_each_option_is_on_the_command_line(options, others):
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    add_flags(parser, options)
    flags = {action.dest for action in parser._actions} - {"help", argparse.SUPPRESS}
    assert flags == {field.name for field in attrs.fields(options)} - others


def test_flags_become_options():
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    add_flags(parser, Script)
    words = (
        "-n 4 --workers-per-host 2 --hosts a,b --cores-per-worker 2 --gpus-per-worker 1 --start-timeout 9 "
        "--max-restarts 1 train.py -n 5"
    )
    assert given_flags(parser.parse_args(words.split()), Script) == {
        "workers": 4, "workers_per_host": 2, "hosts": ["a", "b"], "cores_per_worker": 2,
        "gpus_per_worker": 1, "start_timeout": 9.0, "max_restarts": 1, "script": "train.py",
        "arguments": ["-n", "5"],
    }  # fmt: skip


@pytest.fixture
def parsed():
    """The variables for the workers that flags give."""
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS)
    add_flags(parser, Workers)
    return lambda *words: parser.parse_args(words).env


def test_variables_from_the_environment_and_from_a_file(parsed, monkeypatch, tmp_path):
    monkeypatch.setenv("SECRET", "a=b")
    (tmp_path / "env").write_text("# of the team\nA=1\n\n TOKEN=x=y \n")
    words = ["--env", "A=0", "--env-file", str(tmp_path / "env"), "--env", "SECRET", "--env", "B="]
    assert parsed(*words) == {"A": "1", "TOKEN": "x=y ", "SECRET": "a=b", "B": ""}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--env", "=1"], "argument --env: it takes NAME or NAME=VALUE, such as --env OMP_NUM_THREADS=1"),
        (
            ["--env", "NOT_SET"],
            "argument --env: NOT_SET takes the value of this environment, which has no NOT_SET",
        ),
        (["--env-file", "absent"], "argument --env-file: absent cannot be read (No such file or directory)"),
        (["--env-file", "latin"], "argument --env-file: latin cannot be read (no UTF-8)"),
        (["--env-file", "bad"], "argument --env-file: line 2 of bad has another form than NAME=VALUE"),
    ],
)
def test_variables_that_cannot_be_taken(parsed, words, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("latin").write_bytes(b"A=\xe4\n")
    Path("bad").write_text("A=1\na secret\n")
    with pytest.raises(SystemExit) as ended:
        parsed(*words)
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert "a secret" not in error
