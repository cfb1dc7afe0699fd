"""What is wrong with the TF_CONFIG of one process is told to its peers."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from meeting import PROGRAM, addresses, outcomes, run, started

from tfdistr.errors import ClusterConfigError
from tfdistr.rendezvous import meeting
from tfdistr.rendezvous.meeting import cluster_to_join
from tfdistr.utils import processes

pytestmark = pytest.mark.timeout(60)


@contextmanager
def with_bad_config(config: object) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, str(PROGRAM.with_name("bad_config.py"))], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TF_CONFIG": config if isinstance(config, str) else json.dumps(config)},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def bad(cluster: dict[str, Any], task: Any = None) -> dict[str, Any]:
    return {"cluster": cluster, "task": task or {"type": "worker", "index": 0}}


#: What makes a wrong TF_CONFIG of the addresses of all workers, and the rule that it breaks.
WRONG = [
    (lambda all: bad({"worker": all}, {"type": "worker", "index": 3}), "`task.index` must be from 0"),
    (lambda all: bad({"worker": all}, {"type": "boss", "index": 0}), "`task.type` must be"),
]


@pytest.mark.parametrize(("make", "rule"), WRONG)
def test_what_is_wrong_with_the_tf_config_of_a_process_is_told_to_its_peers(make, rule):
    """Also to those that come later, although the process ends at once."""
    tasks = addresses(3)
    waits = (2, 1, 3)
    each = [{"tasks": tasks, "own": f"worker {i}", "timeout": 30, "wait": waits[i]} for i in range(3)]
    with with_bad_config(make(list(tasks.values()))) as process, started(each) as workers:
        said, _ = process.communicate(timeout=30)
        assert process.returncode == 1
        assert said.startswith(rule)
        ended = outcomes(workers)
    first, received, *_ = said.splitlines()
    for one in ended:
        lines = one["said"].splitlines()
        assert lines[0] == f"ClusterStartError: {first}"
        shown = f"{received}, in" if received.startswith("Received: ") else "Received: in"
        assert lines[1] == f"{shown} process {process.pid} on {socket.gethostname()}"
        assert one["seconds"] < 5


def test_a_session_says_at_once_what_is_wrong_with_its_tf_config_and_tells_it_later(monkeypatch):
    tasks = addresses(2)
    config = bad({"worker": list(tasks.values())}, {"type": "worker", "index": 2})
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    monkeypatch.setattr(processes._Session, "lives_on", True)
    began = time.monotonic()
    with pytest.raises(ClusterConfigError, match="must be from 0 to 1"):
        cluster_to_join()
    assert time.monotonic() - began < meeting.SEEKING / 3
    assert run(tasks, 1)[0].startswith("ClusterStartError: `task.index` must be from 0 to 1")


@pytest.mark.parametrize(
    "config",
    ["{", "[1]", '{"cluster": 5}', '{"cluster": {"worker": 5}}', '{"cluster": {"worker": "no.invalid:1"}}'],
)
def test_a_tf_config_that_names_nobody_who_can_be_told_is_refused_at_once(monkeypatch, config):
    monkeypatch.setenv("TF_CONFIG", config)
    began = time.monotonic()
    with pytest.raises(ClusterConfigError):
        cluster_to_join()
    assert time.monotonic() - began < 5


def test_a_script_says_that_it_looks_for_workers_that_are_not_there(monkeypatch, caplog):
    monkeypatch.setattr(meeting, "SEEKING", 2.0)
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": list(addresses(2).values())}}))
    with pytest.raises(ClusterConfigError):
        cluster_to_join()
    assert caplog.messages == ["TF_CONFIG is not valid. This is told to the workers that it names."]
