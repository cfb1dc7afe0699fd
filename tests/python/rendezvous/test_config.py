"""TF_CONFIG: what is read from it, and what is built."""

import copy
import doctest
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from config_cases import A, B, C, text_of
from jsonschema import Draft202012Validator

from tfdistr.errors import ArgumentError, ClusterConfigError
from tfdistr.rendezvous import config as cluster
from tfdistr.rendezvous import tf_config as tf_config_module
from tfdistr.rendezvous.config import (
    JOBS,
    ClusterConfig,
    ClusterPlan,
    Task,
    cluster_from_env,
    parse_tf_config,
    tf_config,
)
from tfdistr.rendezvous.tf_config import split_address
from tfdistr.schemas import load_schema

# What is read --------------------------------------------------------------------------------------

#: What jsonlite 1.8.4 writes, with and without `auto_unbox`, and the jobs and the task that this is.
JSONLITE = [
    (
        '{"cluster":{"worker":["a:1","b:1"]},"task":{"type":"worker","index":1.0}}',
        ({"worker": ("a:1", "b:1")}, Task("worker", 1)),
    ),
    (
        '{"cluster":{"worker":"a:1","ps":[],"chief":{},"evaluator":null},"task":{"type":"worker","index":0}}',
        ({"worker": ("a:1",)}, Task("worker", 0)),
    ),
    (
        '{"cluster":{"worker":["a:1","b:1"],"chief":"c:1","ps":"d:1"},"task":{"type":"chief","index":"0"}}',
        ({"chief": ("c:1",), "worker": ("a:1", "b:1"), "ps": ("d:1",)}, Task("chief", 0)),
    ),
    (
        '{"cluster":{"worker":["a:1"]},"task":{"type":["worker"],"index":[0]}}',
        ({"worker": ("a:1",)}, Task("worker", 0)),
    ),
    (
        '{"cluster":{"worker":[["a:1"],["b:1"]],"ps":{}},"task":{"type":["worker"],"index":[1]}}',
        ({"worker": ("a:1", "b:1")}, Task("worker", 1)),
    ),
]


@pytest.mark.parametrize(("text", "expected"), JSONLITE)
def test_what_jsonlite_writes_is_read(text: str, expected: tuple[dict[str, tuple[str, ...]], Task]) -> None:
    config = parse_tf_config(text)
    assert (config.jobs, config.task) == expected
    assert type(config.task.index) is int
    assert ClusterConfig.from_json(config.to_json()) == config


def test_normal_form() -> None:
    config = parse_tf_config(
        '{"task": {"index": "1", "type": "worker", "x": 7}, "cluster": {"ps": [], "worker": ["b:1", "a:1"]}}'
    )
    assert config.to_dict() == {"cluster": {"worker": ["b:1", "a:1"]}, "task": {"type": "worker", "index": 1}}
    assert (
        config.to_json() == '{"cluster": {"worker": ["b:1", "a:1"]}, "task": {"type": "worker", "index": 1}}'
    )
    assert config.to_env() == {"TF_CONFIG": config.to_json()}
    assert str(config) == config.to_json()


def test_a_config_is_read_as_itself() -> None:
    config = tf_config(worker=A, type="worker", index=0)
    assert parse_tf_config(config) is config


@pytest.mark.parametrize(
    "address",
    [
        *("a:1", "a:65535", "node-1.example.org:2222", "my_service:80", "10.0.0.1:2222"),
        *("[::1]:2222", "[fe80::1:2]:1", "[::ffff:1.2.3.4]:1"),
    ],
)
def test_valid_addresses(address: str) -> None:
    host, _, port = address.rpartition(":")
    assert split_address(address) == (host.strip("[]"), int(port))
    assert tf_config(worker=address, type="worker", index=0).address == address


# Roles ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("jobs", "task", "num_workers", "worker_index", "is_chief", "address"),
    [
        ({"worker": [A, B]}, ("worker", 0), 2, 0, True, A),
        ({"worker": [A, B]}, ("worker", 1), 2, 1, False, B),
        ({"chief": C, "worker": [A, B]}, ("chief", 0), 3, 0, True, C),
        ({"chief": C, "worker": [A, B]}, ("worker", 0), 3, 1, False, A),
        ({"chief": C}, ("chief", 0), 1, 0, True, C),
        ({"worker": [A], "evaluator": C}, ("evaluator", 0), 1, None, False, C),
        ({"worker": [A]}, ("evaluator", 0), 1, None, False, None),
        ({"chief": C, "worker": [A], "ps": [B]}, ("chief", 0), 1, None, True, C),
        ({"chief": C, "worker": [A], "ps": [B]}, ("worker", 0), 1, 0, False, A),
        ({"chief": C, "worker": [A], "ps": [B]}, ("ps", 0), 1, None, False, B),
    ],
)
def test_roles(
    jobs: Any, task: tuple[str, int], num_workers: int, worker_index: int | None, is_chief: bool, address: str
) -> None:
    config = ClusterConfig(jobs, Task(*task))
    assert (config.num_workers, config.worker_index) == (num_workers, worker_index)
    assert (config.is_chief, config.address) == (is_chief, address)
    assert len(config.addresses) == num_workers
    if worker_index is not None:
        assert config.addresses[worker_index] == address


def test_a_config_is_a_value() -> None:
    config = tf_config(worker=[A, B], type="worker", index=1)
    assert config == ClusterConfig({"worker": (A, B)}, Task("worker", 1))
    assert config != ClusterConfig({"worker": (A, B)}, Task("worker", 0))
    assert len({config, parse_tf_config(config.to_json())}) == 1
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config
    with pytest.raises(AttributeError):
        config.task = Task("worker", 0)  # type: ignore[misc]


def read_by_tensorflow() -> dict[str, Any]:
    """What TensorFlow finds in TF_CONFIG."""
    from tensorflow.python.distribute import multi_worker_util as util
    from tensorflow.python.distribute.cluster_resolver import tfconfig_cluster_resolver

    resolver = tfconfig_cluster_resolver.TFConfigClusterResolver()
    spec, task = resolver.cluster_spec(), (resolver.task_type, resolver.task_id)
    trains = task[0] in ("chief", "worker")
    return {
        "cluster": spec.as_dict(), "type": task[0], "index": task[1], "rpc_layer": resolver.rpc_layer,
        "num_workers": util.worker_count(spec, task[0]) if trains else None,
        "worker_index": util.id_in_cluster(spec, *task) if trains else None,
        "is_chief": util.is_chief(spec, *task) if trains else False,
    }  # fmt: skip


def test_tensorflow_reads_the_same_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = [
        tf_config(worker=A, type="worker", index=0),
        tf_config(worker=[A, B], type="worker", index=1),
        *tf_config(worker=[A, "[::1]:2222"], chief=C),
        ClusterConfig({"worker": (A, B)}, Task("evaluator", 0)),
        parse_tf_config(text_of(rpc_layer="grpc", environment="cloud")),
        *(parse_tf_config(text) for text, _ in JSONLITE if '"ps":"d:1"' not in text),
    ]
    for config in configs:
        monkeypatch.setenv("TF_CONFIG", config.to_json())
        assert read_by_tensorflow() == {
            "cluster": {job: list(addresses) for job, addresses in config.jobs.items()},
            "type": config.task.type,
            "index": config.task.index,
            "rpc_layer": config.extra.get("rpc_layer"),
            "num_workers": None if config.worker_index is None else config.num_workers,
            "worker_index": config.worker_index,
            "is_chief": config.is_chief,
        }


# The environment ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", " \n", "{}", "[]", '{"cluster": {}}', '{"cluster": [], "task": []}'),
        '{"cluster": null, "task": {}}',
        '{"environment": "cloud", "cluster": {}, "task": {}, "job": {"args": []}}',
    ],
)
def test_no_cluster_in_the_environment(text: str | None) -> None:
    assert cluster_from_env({} if text is None else {"TF_CONFIG": text}) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"task": {"type": "worker", "index": 1}}', '`TF_CONFIG` must have the member "cluster".'),
        ('{"cluster": {"worker": []}}', '`TF_CONFIG` must have the member "task".'),
        ("null", "`TF_CONFIG` must be a JSON object with the members"),
    ],
)
def test_half_a_cluster_in_the_environment_is_refused(text: str, message: str) -> None:
    with pytest.raises(ClusterConfigError, match="^" + re.escape(message)):
        cluster_from_env({"TF_CONFIG": text})


# The builder ----------------------------------------------------------------------------------------


def test_every_task() -> None:
    plan = tf_config(worker=[A, B], chief=C, ps=["d:1", "e:1"])
    assert isinstance(plan, ClusterPlan)
    assert [str(config.task) for config in plan] == ["chief 0", "worker 0", "worker 1", "ps 0", "ps 1"]
    assert len(plan) == 5
    assert plan[2] == tf_config(worker=[A, B], chief=C, ps=["d:1", "e:1"], type="worker", index=1)
    assert [parse_tf_config(member) for member in json.loads(plan.to_json())] == list(plan)
    assert [cluster_from_env(environment) for environment in plan.environments()] == list(plan)


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
    extra = {"job": {"args": ['it\'s "$HOME" `id` \\ \\n \n é %s {} #', 1.5, None, True]}}
    config = ClusterConfig({"worker": (A, "[::1]:2222")}, Task("worker", 1), extra)
    assert config.to_json().isascii()
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


@pytest.mark.parametrize(
    ("task", "received"),
    [({"type": "worker"}, 'type = "worker", index = null'), ({"index": 1}, "type = null, index = 1")],
)
def test_half_a_task_is_refused(task: Any, received: str) -> None:
    with pytest.raises(ClusterConfigError) as caught:
        tf_config(worker=A, **task)
    assert caught.value.received == received


def test_the_schema_is_draft_2020_12() -> None:
    schema = load_schema("tf_config")
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(schema["examples"][0])
    assert schema["$defs"]["job"]["enum"] == list(JOBS)
    assert schema["properties"]["cluster"]["propertyNames"]["enum"] == list(JOBS)


def test_import_is_light() -> None:
    heavy = "{'tensorflow', 'keras', 'jsonschema'}"
    code = f"import sys, tfdistr.rendezvous.config; print(sorted({heavy} & sys.modules.keys()))"
    run = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=60
    )
    assert (run.stdout, run.returncode) == ("[]\n", 0), run.stderr


@pytest.mark.parametrize("module", [cluster, tf_config_module])
def test_examples_in_the_documentation(module: Any) -> None:
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0
