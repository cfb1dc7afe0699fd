"""The process of a pod: the exit status and the message that Kubernetes gets."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfdistr.cli.kubernetes.manifests import kubernetes_manifests
from tfdistr.cli.kubernetes.pod import message, run_in_pod
from tfdistr.errors import ArgumentError


def start(script: Path) -> subprocess.Popen[str]:
    """The pod of worker 0 of one, with the command and the variables of the manifest."""
    container = kubernetes_manifests(str(script), workers=1)[-1]["spec"]["template"]["spec"]["containers"][0]
    env = {each["name"]: each["value"] for each in container["env"]}
    env |= {"JOB_COMPLETION_INDEX": "0", "TFDISTR_KUBERNETES_MESSAGE": str(script.with_name("message"))}
    command = [sys.executable, *container["command"][1:]]
    command[command.index(f"/mnt/script/{script.name}")] = str(script)
    return subprocess.Popen(
        command, env={**os.environ, **env, "TMPDIR": str(script.parent)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        ("print('well')", 0, None),
        ("raise ValueError('broken')", 1, "broken"),
        ("import sys; sys.exit(7)", 7, ""),
        ("import sys; sys.exit(76)", 1, ""),  # 76 means that another worker has failed
        ("import os; os.kill(os.getpid(), 9)", 137, ""),
    ],
)
def test_the_end_of_a_pod(tmp_path: Path, script: str, status: int, said: str | None) -> None:
    file = tmp_path / "train.py"
    file.write_text(script)
    process = start(file)
    _, error = process.communicate(timeout=60)
    assert process.returncode == status, error
    written = tmp_path / "message"
    if said is None:
        assert not written.exists()
    else:
        assert json.loads(written.read_text()).get("message", "") == said
    assert {path.name for path in tmp_path.iterdir()} <= {"train.py", "message"}


def test_sigterm_reaches_the_script(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(
        "import pathlib, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\n"
        f"pathlib.Path({str(tmp_path / 'ready')!r}).touch()\ntime.sleep(60)\n"
    )
    process = start(file)
    try:
        end = time.monotonic() + 30
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        assert process.returncode == 75
    finally:
        process.kill()
        process.communicate()


def test_only_a_pod_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TFDISTR_KUBERNETES_HOSTS", raising=False)
    with pytest.raises(ArgumentError, match="`tfdistr kubernetes worker` is what a pod of") as caught:
        run_in_pod("train.py", [])
    assert caught.value.received == "a process without the variables of such a pod"


@given(st.text(max_size=6000), st.text(max_size=6000))
def test_kubernetes_cuts_no_message(said: str, traceback: str) -> None:
    text = message({"message": said, "traceback": traceback, "error_type": "ValueError"}, 1)
    assert len(text.encode(errors="replace")) <= 4096
    assert json.loads(text)["error_type"] == "ValueError"
