"""What the user gives workers in their environment is shown to nobody."""

import json
import os
import secrets
import sys
from pathlib import Path
from typing import Any

import hosts
import pytest
from launched import wait_for
from observed import containing, everybody

from tfdistr.clusters import guard
from tfdistr.clusters.local.local_cluster import local_cluster
from tfdistr.clusters.ray import driver
from tfdistr.clusters.ray.ray_cluster import ray_cluster
from tfdistr.clusters.slurm.slurm_cluster import slurm_cluster
from tfdistr.clusters.ssh.ssh_cluster import ssh_cluster
from tfdistr.clusters.worker_process import stop
from tfdistr.errors import ArgumentError
from tfdistr.network.loopback import keep_to_loopback

pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("_small_servers")]

TOKEN = "s3cr3t"


@pytest.mark.parametrize(
    ("env", "rule", "received"),
    [
        ([f"TOKEN={TOKEN}"], "`env` must map the names of environment variables", "an object of class list"),
        ({"TOKEN": [TOKEN]}, "`env` must give TOKEN a value that is text", "an object of class list"),
        ({"TOKEN": f"{TOKEN}\0"}, "`env` must give TOKEN a value that is text", "text with a null character"),
        ({f"TOKEN={TOKEN}": "1"}, "Each name in `env` must be the name of", '"TOKEN=..."'),
        ({"": TOKEN}, "Each name in `env` must be the name of", '""'),
        ({"TF_CONFIG": TOKEN}, "`env` must not set TF_CONFIG: the launcher", "env with TF_CONFIG"),
        ({"TFDISTR_PARENT_PID": TOKEN}, "`env` must not set TFDISTR_PARENT_PID: the launcher",
         "env with TFDISTR_PARENT_PID"),
    ],
)  # fmt: skip
def test_errors_do_not_show_the_environment(env: Any, rule: str, received: str) -> None:
    hosts = lambda: ssh_cluster(["a"], env=env)  # noqa: E731
    for make in (lambda: local_cluster(env=env), lambda: ray_cluster(env=env), hosts):
        with pytest.raises(ArgumentError) as caught:
            make()
        assert caught.value.message.startswith(rule)
        assert (caught.value.received, bool(caught.value.fix)) == (received, True)
        assert TOKEN not in str(caught.value)


def test_a_printed_cluster_does_not_show_it() -> None:
    env = {"TOKEN": TOKEN}
    for cluster in (local_cluster(env=env), ray_cluster(env=env), ssh_cluster(["a"], env=env)):
        assert TOKEN not in repr(cluster)
        assert TOKEN not in str(cluster)


# Leaves its environment for the test, outside of the run directory.
ENVIRONMENT = """
import json, os, sys
folder, run_dir, index = sys.argv[1:]
with open(os.path.join(folder, index), "w") as file:
    json.dump({k: v for k, v in os.environ.items() if k.startswith(("TOKEN", "LD_PRELOAD"))}, file)
"""


def test_the_environment_arrives_as_it_was(tmp_path: Path) -> None:
    tokens = {"TOKEN": "a b", "TOKEN_EMPTY": "", "TOKEN_LINES": "a\nb\r\n\tc", "TOKEN_EURO": "\u20ac",
              "TOKEN_QUOTED": "'\"\\;$(x)`=,%", "TOKEN_LONG": "x" * 100_000}  # fmt: skip
    given, run_dir = tmp_path / "given", tmp_path / "run"
    given.mkdir()
    run_dir.mkdir(mode=0o700)
    cluster = local_cluster(2, env=tokens | {"LD_PRELOAD": "libm.so.6"})
    processes = cluster.start([sys.executable, "-c", ENVIRONMENT, str(given)], run_dir)
    try:
        assert wait_for(lambda: all(process.poll() is not None for process in processes), 60)
    finally:
        stop(processes)
    assert [process.exit_code for process in processes] == [0, 0]
    library = keep_to_loopback({}).library
    for index in "01":
        arrived = json.loads((given / index).read_text())
        assert arrived == tokens | {"LD_PRELOAD": f"libm.so.6:{library}"}


def test_nor_is_it_to_be_read_on_several_hosts(tmp_path: Path) -> None:
    if why := hosts.missing():
        pytest.skip(why)
    given, run_dir, word = tmp_path / "given", tmp_path / "run", secrets.token_hex(16)
    given.mkdir()
    run_dir.mkdir(mode=0o700)
    with hosts.hosts("ab", tmp_path) as two:
        addresses = [two.address("a"), two.address("b")]
        cluster = ssh_cluster(addresses, env={"TOKEN": word}, ssh=two.ssh)
        wait = f"{ENVIRONMENT}\nimport time\ntime.sleep(600)"
        processes = cluster.start([sys.executable, "-c", wait, str(given)], run_dir)
        try:
            assert wait_for(
                lambda: all(process.poll() is None for process in processes)
                and len([file for file in given.iterdir() if file.read_text().endswith("}")]) == 2,
                60,
            )  # fmt: skip
            assert containing(str(run_dir), everybody(), tmp_path / "nothing")
            assert containing(word, everybody(), run_dir) == []
        finally:
            stop(processes)
    assert all(json.loads((given / index).read_text()) == {"TOKEN": word} for index in "01")
    assert containing(word, set(), run_dir) == []


# As long as there is a file "runs", a job runs; each program notes what it is told.
SLURM = """#!/bin/sh
folder=${0%/*}
program=${0##*/}
echo "$program $*" >>"$folder/told"
case $program in
  sbatch) touch "$folder/runs"; echo 1 ;;
  scancel) rm -f "$folder/runs" ;;
  scontrol) [ -e "$folder/runs" ] && state=RUNNING || state=CANCELLED
    echo "JobId=1 JobState=$state Reason=None Dependency=(null)" ;;
  srun) exec sleep 600 ;;
esac
"""


@pytest.mark.parametrize("program", ["sbatch", "srun"])
def test_slurm_has_it_in_one_private_file(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, run_dir, word = tmp_path / "bin", tmp_path / "run", secrets.token_hex(16)
    programs.mkdir()
    run_dir.mkdir(mode=0o700)
    for name in ("sbatch", "scancel", "scontrol", "srun"):
        (programs / name).write_text(SLURM)
        (programs / name).chmod(0o700)
    for name in [name for name in os.environ if name.startswith("SLURM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    if program == "srun":  # as in an allocation
        monkeypatch.setenv("SLURM_JOB_ID", "1")
        monkeypatch.setenv("SLURM_JOB_NODELIST", "a,b")
    told = programs / "told"
    processes = slurm_cluster(2, env={"TOKEN": word}).start([sys.executable, "-c", ""], run_dir)
    try:
        assert wait_for(lambda: told.exists() and program in told.read_text(), 60)
        private = run_dir / guard.SPEC
        assert containing(word, everybody(), tmp_path) == [str(private)]
        assert private.stat().st_mode & 0o777 == 0o600
        (environment, _) = json.loads(private.read_text())["environments"]
        assert environment["TOKEN"] == word
    finally:
        stop(processes, grace=0)
    assert containing(word, set(), tmp_path) in ([], [str(private)])


# In the place of ray_driver.py: it places the workers, and keeps what they shall start to itself.
DRIVER = """
import json, os, sys
sys.stdin.readline()
place = {"node": "f7", "address": "10.0.0.1", "host": "a", "python": sys.executable, "core": "/x"}
place["sees"] = True
print(MARK + json.dumps({"placed": [{**place, "port": port} for port in (2222, 2223)]}), flush=True)
start = json.loads(sys.stdin.readline())["start"]
with open(os.path.join(os.path.dirname(__file__), "tokens"), "w") as file:
    json.dump([each["spec"]["env"]["TOKEN"][::-1] for each in start], file)
sys.stdin.read()
"""


def test_ray_gets_it_by_no_file_and_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir, word, tokens = tmp_path / "run", secrets.token_hex(16), tmp_path / "tokens"
    run_dir.mkdir(mode=0o700)
    program = tmp_path / "driver.py"
    program.write_text(f"MARK = {guard.MARK!r}\n{DRIVER}")
    monkeypatch.setattr(driver, "__file__", str(program))
    cluster = ray_cluster(2, address="local", env={"TOKEN": word})
    processes = cluster.start([sys.executable, "-c", ""], run_dir)
    try:

        def arrived() -> bool:
            processes[0].poll()
            return tokens.exists() and tokens.read_text().endswith("]")

        assert wait_for(arrived, 60)
        assert json.loads(tokens.read_text()) == [word[::-1]] * 2
        assert containing(str(program), everybody(), tmp_path / "nothing")
        assert containing(word, everybody(), tmp_path) == []
    finally:
        stop(processes, grace=0)
    assert containing(word, set(), tmp_path) == []
