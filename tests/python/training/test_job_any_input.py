"""The arguments of distributed_fit() and of clusters: any value gives a valid object or an error of tfdistr.

Nothing else is raised, and no process is started.
`corpus.json` has values that once were not refused, or not well.
"""

import json
import math
import subprocess
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from paths import ROOT
from slow import few_or_many

import tfdistr
from tfdistr.clusters.local.local_cluster import LocalCluster, describe_local_cluster
from tfdistr.clusters.ssh.ssh_cluster import SshCluster
from tfdistr.errors import TfdistrError
from tfdistr.jobs.strategies import STRATEGIES, as_strategy
from tfdistr.training.job import Job
from tfdistr.training.job_arguments import make_job

thorough = settings(
    max_examples=few_or_many(100, 300), deadline=None, derandomize=True, database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
CORPUS = json.loads((ROOT / "tests" / "faults" / "corpus.json").read_text())
CLUSTERS = [describe_local_cluster(2), describe_local_cluster(2, ps=1)]
X, Y = np.zeros((10, 2), "float32"), np.zeros((10, 1), "float32")

scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6) | st.binary(max_size=4)
    | st.sampled_from([0, 1, 2, 32, 2.0, -1, math.nan, math.inf, 10**400, "auto", "mpi", "linear", "gpus"])
    | st.sampled_from([np.float32(2), np.int64(3), np.array([1, 2]), np.zeros(0), object(), len, dict, X])
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 3), inner, max_size=3)
    ),
    max_leaves=5,
)
ARGUMENTS = [
    "batch_size", "epochs", "steps_per_epoch", "validation_data",
    "validation_split", "validation_steps", "validation_batch_size", "validation_freq", "initial_epoch",
    "callbacks", "class_weight", "sample_weight",
    "seed", "shuffle", "drop_remainder", "virtual_workers", "communication",
    "gradient_dtype", "start_timeout", "heartbeat_timeout",
]  # fmt: skip


@pytest.fixture(autouse=True)
def no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be started, but for questions to the MPI that is installed."""
    for name in ("TF_CONFIG", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)

    start = subprocess.Popen

    def refuse(command: Any, *args: Any, **kwargs: Any) -> Any:
        if command == ["uname", "-p"]:  # by TensorFlow, when it is imported
            return start(command, *args, **kwargs)
        raise AssertionError(f"a process was started: {command}")

    monkeypatch.setattr("tfdistr.clusters.local.local_cluster.mpi_library", lambda: "MPICH")
    monkeypatch.setattr(subprocess, "Popen", refuse)


def valid_or_refused(made: type | tuple[type, ...], make: Any) -> None:
    try:
        assert isinstance(make(), made)
    except TfdistrError as error:
        str(error).encode("utf-8", "backslashreplace")


@thorough
@given(st.dictionaries(st.sampled_from(ARGUMENTS), values, max_size=3), st.integers(1, 4))
def test_any_argument_makes_a_job_or_is_refused(arguments: dict[str, Any], workers: int) -> None:
    valid_or_refused(Job, lambda: make_job(len, X, Y, num_workers=workers, **arguments))


@thorough
@given(values, values, values)
def test_any_model_and_data_make_a_job_or_are_refused(model: Any, x: Any, y: Any) -> None:
    valid_or_refused(Job, lambda: make_job(model, x, y, num_workers=2))
    valid_or_refused(Job, lambda: make_job(len, x, y, num_workers=2))


@thorough
@given(values, values, values, values, values, values)
def test_any_local_cluster(workers: Any, ps: Any, cores: Any, env: Any, follow: Any, timeout: Any) -> None:
    for options in (
        {"workers": workers, "ps": ps},
        {"cores_per_worker": cores, "env": env},
        {"follow": follow},
        {"start_timeout": timeout},
        {"workers": workers, "cores_per_worker": cores, "env": env, "follow": follow},
    ):
        valid_or_refused(LocalCluster, lambda options=options: describe_local_cluster(**options))


@thorough
@given(values, values, values, values)
def test_any_ssh_cluster(hosts: Any, each: Any, env: Any, ssh: Any) -> None:
    valid_or_refused(SshCluster, lambda: tfdistr.ssh_cluster(hosts, workers_per_host=each))
    valid_or_refused(SshCluster, lambda: tfdistr.ssh_cluster(["a"], env=env, ssh=ssh))


@thorough
@given(
    st.sampled_from([*STRATEGIES]) | values,
    st.sampled_from(["communication", "devices", "device", "update", "replicas_to_aggregate", "placement"]),
    values,
    st.sampled_from([None, *CLUSTERS]) | values,
)
def test_any_destination(strategy: Any, option: str, value: Any, cluster: Any) -> None:
    def destination() -> Any:
        chosen = as_strategy(strategy)
        # Not MPI, which would start in this process.
        if hasattr(chosen, option) and not (isinstance(value, str) and value == "mpi"):
            chosen = attrs.evolve(chosen, **{option: value})
        return chosen.destination(cluster)

    valid_or_refused(tuple, destination)


def decoded(value: Any) -> Any:
    """A value of the corpus, in which what JSON has no form for is written as {"number": "NaN"}."""
    return float(value["number"]) if isinstance(value, dict) and set(value) == {"number"} else value


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: f"{case['function']}-{case['arguments']}"[:60])
def test_the_corpus(case: dict[str, Any]) -> None:
    arguments = {name: decoded(value) for name, value in case["arguments"].items()}
    functions = {
        "local_cluster": lambda: describe_local_cluster(**arguments),
        "ssh_cluster": lambda: tfdistr.ssh_cluster(**{"hosts": ["a"], **arguments}),
        "parse_tf_config": lambda: tfdistr.ClusterConfig.from_json(arguments["text"]),
        "distributed_fit": lambda: make_job(len, X, Y, num_workers=2, **arguments),
        "per_worker": lambda: tfdistr.per_worker(**arguments),
        "on_failure": lambda: tfdistr.on_failure(**arguments),
        "multi_worker_mirrored": lambda: tfdistr.multi_worker_mirrored(**arguments),
    }
    refused = None
    try:
        functions[case["function"]]()
    except TfdistrError as error:
        refused = error.kind
    assert refused == case["refused"]
