"""The command `tfdistr`: what it says, and how it reads the addresses of a cluster."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from paths import ROOT

import tfdistr
from tfdistr.cli.main import run, server_config
from tfdistr.errors import ArgumentError

JOBS = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}
NO_HOSTS: dict[str, str | None] = {"chief": None, "worker": None, "ps": None}
HOSTS = ["--worker-hosts=b:1", "--chief-host=c:1"]


def test_the_command_and_the_module_are_one():
    installed = Path(sys.executable).with_name("tfdistr")
    said = [
        subprocess.run([*command, "server", "--help"], capture_output=True, text=True, timeout=60)
        for command in ([str(installed)], [sys.executable, "-m", "tfdistr"])
    ]
    assert [process.returncode for process in said] == [0, 0]
    assert said[0].stdout == said[1].stdout
    assert "--ps-hosts" in said[0].stdout


@pytest.mark.parametrize(
    "document", [JOBS, {"cluster": JOBS}, {"cluster": JOBS, "task": {"type": "chief", "index": 0}}]
)
def test_a_cluster_in_a_file(document, tmp_path):
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(document))
    config = server_config("ps", 0, str(file), NO_HOSTS)
    assert config.jobs == {job: tuple(addresses) for job, addresses in JOBS.items()}
    assert str(config.task) == "ps 0"


def test_a_task_in_a_file(tmp_path):
    file = tmp_path / "tf_config.json"
    file.write_text(json.dumps({"cluster": JOBS, "task": {"type": "worker", "index": 1}}))
    assert server_config(None, None, str(file), NO_HOSTS).address == "c:1"


def test_addresses_as_in_scripts_of_tensorflow_1():
    config = server_config("worker", 1, None, {"chief": "a:1", "worker": "b:1,c:1", "ps": "d:1"})
    assert config.address == "c:1"
    assert config.jobs["ps"] == ("d:1",)


def test_a_cluster_in_tf_config(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": JOBS, "task": {"type": "ps", "index": 0}}))
    assert server_config(None, None, None, NO_HOSTS).address == "d:1"


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--type", "ps", "--index", "0"], "A server must know the addresses of the cluster."),
        (["--cluster", "x", "--ps-hosts", "a:1"], "Give the cluster as a file or as addresses, not as both."),
        (["--cluster", "/nowhere"], "`--cluster` must name a file that can be read."),
        (["--ps-hosts", "a:1"], "A server must know which task of the cluster it is."),
        (["--type=ps", "--index=1", "--ps-hosts=a:1", *HOSTS], "`task.index` must"),
        (["--type=ps", "--index=0", "--ps-hosts=a:1", HOSTS[0]], "A cluster with parameter"),
        (["--type", "ps", "--index", "0", "--ps-hosts", "a"], "`cluster.ps[0]` must"),
        (["--type=ps", "--index=0", "--ps-hosts=a:1", *HOSTS, "--chief-timeout=0"],
         "`chief_timeout` must be a number of seconds above 0."),
    ],
)  # fmt: skip
def test_wrong_arguments(arguments, rule, capsys, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert run(["server", *arguments]) == 2
    said = capsys.readouterr().err
    assert said.startswith(rule), said
    assert "\nFix: " in said


def test_a_file_that_is_no_text(tmp_path):
    file = tmp_path / "cluster.json"
    file.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(ArgumentError, match="must name a file that can be read"):
        server_config("ps", 0, str(file), NO_HOSTS)


def test_flags_of_scripts_for_tensorflow_1(monkeypatch):
    taken = []
    monkeypatch.setattr("tfdistr.servers.server_task.serve", lambda config, **_: taken.append(config))
    task, jobs = "--job_name=ps --task_index=1", "--ps_hosts=a:1,b:1 --worker_hosts=c:1 --chief_host=d:1"
    assert run(["server", *task.split(), *jobs.split()]) == 0
    assert taken == [tfdistr.tf_config(ps=["a:1", "b:1"], worker="c:1", chief="d:1", type="ps", index=1)]


def test_the_help_lists_each_flag_once(capsys):
    with pytest.raises(SystemExit):
        run(["run", "--help"])
    said = capsys.readouterr().out
    assert "--log-dir" in said
    assert "--log_dir" not in said


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse formats help in another way since 3.13")
def test_the_page_of_the_command_line_shows_its_help(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools" / "site")
    monkeypatch.setenv("COLUMNS", "84")
    import command_line

    assert command_line.PAGE.read_text() == command_line.page(), "run: python tools/site/command_line.py"


def test_the_version(capsys):
    with pytest.raises(SystemExit) as caught:
        run(["--version"])
    assert (caught.value.code, capsys.readouterr().out) == (0, f"tfdistr {tfdistr.__version__}\n")


def test_the_report_for_a_bug_has_no_secrets(monkeypatch, capsys):
    monkeypatch.setattr("tfdistr.diagnosis.doctor", lambda timeout: f"checks within {timeout:g} s")
    monkeypatch.setenv("TF_NUM_THREADS", "3")
    monkeypatch.setenv("KERAS_API_KEY", "hidden")
    assert run(["env", "--timeout", "5"]) == 0
    said = capsys.readouterr().out
    for title in ("Versions", "Machine", "Environment", "Checks"):
        assert f"{title}\n{'-' * len(title)}\n" in said
    assert "TF_NUM_THREADS" in said
    assert "hidden" not in said
    assert said.endswith("checks within 5 s\n")
    assert f"tfdistr              {tfdistr.__version__}\n" in said
