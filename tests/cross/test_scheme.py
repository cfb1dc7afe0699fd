"""One name for one thing: the arguments of all functions, with their defaults, are those of scheme.json.

A default under "but" is that of one function. signatures.json has what differs between the languages.
"""

import inspect
import json
from operator import attrgetter
from pathlib import Path
from typing import Any

import keras
import pytest
from signatures import REQUIRED, of_python, python_names, read_r, table, twins

import tfdistr
from tfdistr.clusters import cluster

SCHEME = json.loads(Path(__file__).with_name("scheme.json").read_text())
#: Classes whose objects tfdistr makes, and a layer, whose arguments are those of Keras.
MADE = {
    "Bisection", "ClusterConfig", "ClusterPlan", "Comparison", "Diagnosis", "FitResult", "LocalCluster",
    "PartitionedEmbedding", "RayCluster", "Replay", "SlurmCluster", "SshCluster", "Task",
    "Verification", "WorkerContext",
}  # fmt: skip
CLUSTERS = (tfdistr.local_cluster, tfdistr.ssh_cluster, tfdistr.slurm_cluster, tfdistr.ray_cluster)

pytestmark = pytest.mark.timeout(300)


def arguments_of_both() -> dict[str, dict[str, Any]]:
    """The arguments of each public function of Python, and of those that R alone has, with their defaults."""
    found: dict[str, dict[str, Any]] = {}
    for name in python_names(tfdistr):
        value = attrgetter(name)(tfdistr)
        if name not in MADE and callable(value) and not name.endswith(("Error", "Warning")):
            found[name] = dict(of_python(value).arguments)
    known = {*found, *twins(table()).values()}
    for name, listed in read_r()["exports"].items():
        if name not in known:
            found[name] = {one["name"]: one.get("default", REQUIRED) for one in listed}
    return found


def test_each_argument_and_default_is_in_the_scheme():
    found: dict[str, dict[str, Any]] = {}
    for function, arguments in arguments_of_both().items():
        for name, default in arguments.items():
            if name != "...":
                found.setdefault(name, {})[function] = default
    assert sorted(found) == sorted(SCHEME)
    for name, defaults in found.items():
        given = SCHEME[name]
        wanted = {function: given.get("but", {}).get(function, given["default"]) for function in defaults}
        assert json.loads(json.dumps(defaults)) == wanted, name
        assert given.get("but", {}).keys() <= defaults.keys(), name
        assert given["default"] in json.loads(json.dumps([*defaults.values()])), name


def test_what_to_train_is_given_as_in_keras():
    ours = [*inspect.signature(tfdistr.distributed_fit).parameters.values()]
    theirs = [*inspect.signature(keras.Model.fit).parameters.values()]
    assert [(one.name, one.default) for one in ours[: len(theirs)]][1:] == [
        (one.name, one.default) for one in theirs[1:]
    ]
    assert len(ours) <= 27


def test_all_clusters_share_their_arguments():
    shared = [field.name.lstrip("_") for field in cluster.Cluster.__attrs_attrs__]
    for function in CLUSTERS:
        names = [*inspect.signature(function).parameters]
        assert [name for name in names if name in shared] == shared, function.__name__
        assert "workers" in names
