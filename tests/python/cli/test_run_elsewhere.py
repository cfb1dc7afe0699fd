"""`tfdistr run` on several hosts and in a Slurm allocation: what tests/clusters does not have."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import hosts
import pytest
import slurm_lab
from launched import is_there, wait_for
from scripts import PID, pids

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow(reason="hosts and a real Slurm")]

SAVES = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(4), print("saved", flush=True), sys.exit(75)))
open("waits-" + str(os.getpid()), "w").close()
time.sleep(100)
"""


def on_hosts(net: hosts.Hosts, communication: str) -> list[str]:
    """The options for the hosts."""
    names = ",".join([net.address("a"), net.address("b")])
    return ["--hosts", names, "--ssh", net.ssh, "--communication", communication]


@pytest.mark.parametrize("communication", ["mpi", "ring"])
def test_sigterm_reaches_scripts_on_hosts(start, net, tmp_path, communication):
    process = start("run", *on_hosts(net, communication), "train.py", script=SAVES)
    wait_for(lambda: len(list(tmp_path.glob("waits-*"))) == 2, 60)
    process.send_signal(signal.SIGTERM)
    said, error = process.communicate(timeout=60)
    assert process.returncode == 75, said + error
    assert [f"[worker {worker}] saved" in said for worker in (0, 1)] == [True, True]
    assert error.startswith("The script was told to end (SIGTERM).\n")


def allocated(
    lab: slurm_lab.Lab, folder: Path, options: str, *words: str, script: str
) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(PID + script)
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PMI"))}
    return subprocess.Popen(
        ["salloc", *options.split(), sys.executable, "-m", "tfdistr", *words], cwd=folder,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**environ, **lab.env, "TMPDIR": str(folder), "TF_CPP_MIN_LOG_LEVEL": "2"},
    )  # fmt: skip


def signal_child(salloc: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to the program that salloc has started."""
    (child,) = Path(f"/proc/{salloc.pid}/task/{salloc.pid}/children").read_text().split()
    os.kill(int(child), number)


def test_sigterm_reaches_scripts_in_an_allocation(lab, tmp_path):
    process = allocated(lab, tmp_path, "-N2 -n2", "run", "--communication", "ring", "train.py", script=SAVES)
    wait_for(lambda: len(list(tmp_path.glob("waits-*"))) == 2, 60)
    signal_child(process, signal.SIGTERM)
    said, error = process.communicate(timeout=60)
    assert process.returncode == 75, said + error
    assert said.count("saved") == 2
    wait_for(lambda: not any(is_there(pid) for pid in pids(tmp_path)), 10)
