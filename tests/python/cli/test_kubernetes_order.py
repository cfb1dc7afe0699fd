"""The pods of a Job are looked at in the order of their ends, however the clocks of their nodes are set."""

import datetime
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tfdistr.cli.kubernetes.kubernetes_job import _Following

HOUR = 3600.0


def text(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")


def pod(index: int, node: str, **state: Any) -> dict[str, Any]:
    return {"metadata": {"name": f"pod-{index}"}, "spec": {"nodeName": node},
            "status": {"containerStatuses": [{"state": state}]}}  # fmt: skip


def ended(index: int, node: str, when: float, *, says: bool = True) -> dict[str, Any]:
    message = json.dumps({"time": when, "error_type": "ValueError"}) if says else "no JSON"
    return pod(index, node, terminated={"exitCode": 1, "finishedAt": text(when), "message": message})


def order(following: _Following, *pods: dict[str, Any]) -> list[str]:
    return [pod["metadata"]["name"] for pod in following._in_order(list(pods))]


@pytest.fixture
def following(tmp_path: Path) -> _Following:
    nothing: Any = None
    return _Following(nothing, nothing, lambda event: None, tmp_path)


@pytest.mark.parametrize("says", [True, False], ids=["a report", "an exit status"])
@pytest.mark.parametrize("ahead", [-HOUR, HOUR], ids=["behind", "ahead"])
def test_a_pod_on_a_node_whose_clock_is_wrong_has_its_place(
    following: _Following, ahead: float, says: bool
) -> None:
    now = time.time()
    starts = {"a": now + ahead, "b": now}
    running = [pod(i, node, running={"startedAt": text(starts[node])}) for i, node in enumerate("ab")]
    assert order(following, *running) == ["pod-0", "pod-1"]
    pods = [ended(0, "a", now + ahead - 10, says=says), ended(1, "b", now - 20, says=says)]
    assert order(following, *pods) == ["pod-1", "pod-0"]
    pods = [ended(0, "a", now + ahead - 20, says=says), ended(1, "b", now - 10, says=says)]
    assert order(following, *pods, pod(2, "b")) == ["pod-0", "pod-1", "pod-2"]


def test_pods_of_one_node_are_in_the_order_of_its_clock(following: _Following) -> None:
    now = time.time() - HOUR
    assert order(following, ended(0, "a", now + 2), ended(1, "a", now + 1)) == ["pod-1", "pod-0"]
