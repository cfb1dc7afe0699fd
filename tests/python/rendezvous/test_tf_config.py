"""TF_CONFIG for all tasks of a cluster: tf_config(), and the lines that set it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tfdistr.errors import ArgumentError, ClusterConfigError
from tfdistr.rendezvous.config import (
    ClusterConfig,
    ClusterPlan,
    Task,
    cluster_from_env,
    parse_tf_config,
    tf_config,
)

A, B, C = "10.0.0.1:2222", "10.0.0.2:2222", "10.0.0.3:2222"
WORKER_0 = {"type": "worker", "index": 0}


def test_one_task() -> None:
    config = tf_config(worker=[A, B], ps=C, chief="d:1", type="ps", index=0)
    assert isinstance(config, ClusterConfig)
    assert config.to_dict() == {
        "cluster": {"chief": ["d:1"], "worker": [A, B], "ps": [C]},
        "task": {"type": "ps", "index": 0},
    }
    assert tf_config(worker=(A, B), type="evaluator", index=0).task == Task("evaluator", 0)


def test_every_task() -> None:
    plan = tf_config(worker=[A, B], chief=C, ps=["d:1", "e:1"])
    assert isinstance(plan, ClusterPlan)
    assert [str(config.task) for config in plan] == ["chief 0", "worker 0", "worker 1", "ps 0", "ps 1"]
    assert len(plan) == 5
    assert plan[2] == tf_config(worker=[A, B], chief=C, ps=["d:1", "e:1"], type="worker", index=1)
    assert [parse_tf_config(member) for member in json.loads(plan.to_json())] == list(plan)
    assert [cluster_from_env(environment) for environment in plan.environments()] == list(plan)


def test_a_plain_string_is_one_address() -> None:
    assert tf_config(worker=A) == tf_config(worker=[A])
    assert len(tf_config(worker=A)) == 1


def test_how_a_plan_prints() -> None:
    jobs = '{"worker": ["a:1", "b:2"]}'
    assert str(tf_config(worker=["a:1", "b:2"])).splitlines() == [
        "# A cluster of 2 tasks: one session for each.",
        "",
        "# worker 0 (the chief), at a:1",
        f"""export TF_CONFIG='{{"cluster": {jobs}, "task": {{"type": "worker", "index": 0}}}}'""",
        "",
        "# worker 1, at b:2",
        f"""export TF_CONFIG='{{"cluster": {jobs}, "task": {{"type": "worker", "index": 1}}}}'""",
    ]
    assert str(tf_config(worker=A)).startswith("# A cluster of 1 task: one session for each.\n")


def test_lines_for_each_language() -> None:
    config = tf_config(worker="a:1", type="evaluator", index=0)
    text = '{"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}'
    assert config.lines() == ["# evaluator 0", f"export TF_CONFIG='{text}'"]
    assert config.lines("R") == ["# evaluator 0", f"Sys.setenv(TF_CONFIG = '{text}')"]
    assert config.lines("python") == ["# evaluator 0", "import os", f"os.environ[\"TF_CONFIG\"] = '{text}'"]
    plan = tf_config(worker=[A, B])
    assert plan.lines("r") == [*plan[0].lines("r"), "", *plan[1].lines("r")]


SHELLS: dict[str, Callable[[str], list[str]]] = {
    "bash": lambda lines: ["bash", "-c", f'{lines}\nprintf %s "$TF_CONFIG"'],
    "r": lambda lines: ["Rscript", "--vanilla", "-e", f'{lines}\ncat(Sys.getenv("TF_CONFIG"))'],
    "python": lambda lines: [sys.executable, "-c", f'{lines}\nprint(os.environ["TF_CONFIG"], end="")'],
}


@pytest.mark.parametrize("language", SHELLS)
def test_the_lines_set_tf_config(language: str) -> None:
    # Members of other tools may hold what a shell, R and Python would each read as their own.
    extra = {"job": 'it\'s "$HOME" `id` \\ \\n \n é %s {} #'}
    config = ClusterConfig({"worker": (A, "[::1]:2222")}, Task("worker", 1), extra)
    command = SHELLS[language]("\n".join(config.lines(language)))
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    environment = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)
    assert run.returncode == 0, run.stderr
    assert run.stdout == config.to_json()
    assert parse_tf_config(run.stdout) == config


@pytest.mark.parametrize("language", ["fish", "", None, ["r"]])
def test_other_languages_are_refused(language: Any) -> None:
    for lines in (tf_config(worker=A).lines, tf_config(worker=A)[0].lines):
        with pytest.raises(ArgumentError) as caught:
            lines(language)
        assert caught.value.message == '`language` must be one of "bash", "r", "python".'
        assert caught.value.received == json.dumps(language)
        assert caught.value.fix == (
            'Pass the language of the session that the lines are for, such as language="bash".'
        )


@pytest.mark.parametrize(
    ("task", "received"),
    [({"type": "worker"}, 'type = "worker", index = null'), ({"index": 1}, "type = null, index = 1")],
)
def test_half_a_task_is_refused(task: Any, received: str) -> None:
    with pytest.raises(ClusterConfigError) as caught:
        tf_config(worker=A, **task)
    assert str(caught.value) == (
        "`type` and `index` name one task together: give both, or neither.\n"
        f"Received: {received}\n"
        'Fix: Pass for example type="worker", index=0, or leave both out to get the plan of every task.'
    )
