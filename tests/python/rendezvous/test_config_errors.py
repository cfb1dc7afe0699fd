"""TF_CONFIG: what is refused, and in which words: the rule, what was received, the fix."""

import json
import re
from typing import Any

import pytest
from config_cases import (
    ADDRESS,
    CLUSTER,
    DEEP_RULE,
    FIXES,
    JSON,
    TASK,
    WHOLE,
    WORKER_0,
    A,
    text_of,
    with_task,
)

from tfdistr.errors import ClusterConfigError
from tfdistr.rendezvous.config import ClusterConfig, Task, parse_tf_config
from tfdistr.rendezvous.tf_config import split_address


def refusal(config: Any) -> ClusterConfigError:
    with pytest.raises(ClusterConfigError) as caught:
        parse_tf_config(config)
    return caught.value


def name(value: object) -> str:
    return re.sub(r"[^\x21-\x7e]", "_", str(value))[:60]


@pytest.mark.parametrize(("config", "rule", "received"), [*JSON, *WHOLE, *CLUSTER, *ADDRESS, *TASK], ids=name)
def test_refused(config: Any, rule: str, received: str | None) -> None:
    error = refusal(config)
    assert (error.message, error.received) == (rule, received)
    str(error).encode("utf-8")  # can be printed


@pytest.mark.parametrize(("config", "fix"), FIXES.items(), ids=name)
def test_the_fix_depends_on_what_is_wrong(config: str, fix: str) -> None:
    assert refusal(config).fix == fix


def test_huge_index() -> None:
    for index in (10**30, 1e300, 10**300):
        error = refusal({"cluster": {"worker": A}, "task": {"type": "worker", "index": index}})
        assert error.message == "`task.index` must be 0: the cluster has 1 worker task, counted from 0."
        assert 0 < len(str(error.received)) <= 200
    assert refusal({"cluster": 10**5000}).received == "an object of class int (int)"


def test_huge_number_in_text() -> None:
    error = refusal(with_task("worker", 0).replace("0}", "9" * 5000 + "}"))
    assert error.message.startswith("TF_CONFIG must be valid JSON: Exceeds the limit")
    assert error.fix == FIXES[""]


def test_long_input_is_cut() -> None:
    error = refusal(text_of(cluster=["x" * 10_000]))
    assert len(str(error.received)) == 200
    assert str(error.received).endswith("...")


def test_values_that_cannot_be_shown() -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    assert refusal({"cluster": {"worker": Hostile()}}).received == "an object of class Hostile (Hostile)"


def test_cycles_are_refused() -> None:
    cycle: dict[str, Any] = {"cluster": {"worker": A}, "task": WORKER_0}
    cycle["self"] = cycle
    assert refusal(cycle).message == DEEP_RULE


def test_a_config_built_by_hand_is_checked_too() -> None:
    with pytest.raises(ClusterConfigError, match=re.escape("`cluster.worker[1]` must have a port.")):
        ClusterConfig({"worker": (A, "b")}, Task("worker", 0))
    with pytest.raises(
        ClusterConfigError, match=re.escape('`task` must be an object with the members "type"')
    ):
        ClusterConfig({"worker": (A,)}, "worker")  # type: ignore[arg-type]
    with pytest.raises(ClusterConfigError) as caught:
        ClusterConfig({"worker": (A,)}, Task("worker", 0), extra=["rpc_layer"])  # type: ignore[arg-type]
    assert caught.value.received == '["rpc_layer"]'


def test_from_json_takes_text_only() -> None:
    with pytest.raises(ClusterConfigError, match="must be JSON text"):
        ClusterConfig.from_json({"cluster": {"worker": A}, "task": WORKER_0})  # type: ignore[arg-type]
    with pytest.raises(ClusterConfigError, match="must be a JSON object with the members"):
        ClusterConfig.from_json(json.dumps(text_of()))


def test_split_address_names_the_field() -> None:
    with pytest.raises(ClusterConfigError) as caught:
        split_address(2222, "coordinator")  # type: ignore[arg-type]
    assert caught.value.message == '`coordinator` must be an address "host:port".'
