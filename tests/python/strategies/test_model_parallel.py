"""Layers of one model on several devices, and on workers of a cluster."""

import json
import runpy
import sys

import numpy as np
import pytest
from clusters import PROGRAMS, run_well
from xla_dumps import operations

import tfdistr
from tfdistr.clusters.local.local_cluster import describe_local_cluster
from tfdistr.errors import ArgumentError, ClusterConfigError
from tfdistr.network.ports import free_ports
from tfdistr.rendezvous.config import tf_config
from tfdistr.strategies.layer_placement import parse_place

pytestmark = pytest.mark.timeout(300)
BOUND = 1e-6
BY_HAND = str(PROGRAMS / "model_parallel_by_hand.py")
TWO = describe_local_cluster(2)
NOT_PLACED = "place() takes a model that is built, before it is trained, outside of the strategy's scope."
NO_TASK, NO_PLACE = "`placement` must name tasks of the cluster.", "`placement` must give devices or tasks."


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    file = tmp_path_factory.mktemp("model_parallel") / "found.json"
    run_well("model_parallel.py", 1, [str(file)], timeout=280)
    return json.loads(file.read_text()) | {"operations": operations(file.with_suffix(".json.xla"))}


@pytest.mark.slow(reason="one process trains 20 models")
@pytest.mark.parametrize(
    "case",
    [
        "halves", "by function", "own step", "clipping", "accumulating", "sixteen bits", "eagerly",
        "jit_compile", "unbuilt",
    ],
)  # fmt: skip
def test_two_devices_train_as_one_does(found, case):
    assert found[case] < BOUND


@pytest.mark.slow(reason="one process trains 20 models")
def test_keras_own_fit_trains_a_placed_model(found):
    assert found["where"]["drop-in"] < BOUND


@pytest.mark.slow(reason="one process trains 20 models")
def test_what_a_layer_and_the_optimizer_hold_is_at_its_place(found):
    weights, slots = found["where"]["weights"], found["where"]["slots"]
    assert weights["embed/embeddings"] == "CPU:0"
    # Where the layer before is, also inside of another.
    assert weights["block/inner/kernel"] == weights["block/norm/moving_mean"] == "CPU:0"
    assert weights["second/kernel"] == weights["last/kernel"] == "CPU:1"
    of_last = [device for name, device in slots.items() if "_last_" in name]
    assert of_last == ["CPU:1"] * 4


@pytest.mark.slow(reason="one process trains 20 models")
def test_both_passes_are_computed_at_the_place(found):
    operations = found["where"]["operations"]
    # Two dense layers: forward, and backward for inputs and weights; and an update of each weight.
    assert operations["MatMul CPU:1"] == 6
    assert operations["BiasAddGrad CPU:1"] == 2
    assert operations["AssignSubVariableOp CPU:1"] == 4
    assert {name.split()[-1] for name in operations} == {"CPU:0", "CPU:1"}


@pytest.mark.slow(reason="one process trains 20 models")
def test_layers_with_tables_stay(found):
    assert found["text"] == 1
    assert found["table"][2] == "cpu:1 for the layer lookup"


@pytest.mark.slow(reason="one process trains 20 models")
def test_xla_compiles_what_lies_between_the_devices(found):
    assert {"MatMul", "ReluGrad"} <= found["operations"]
    assert found["warnings"] == []


@pytest.mark.slow(reason="one process trains 20 models")
@pytest.mark.parametrize(
    ("case", "rule", "received", "choice"),
    [
        ("unknown", "`placement` must name layers of the model.", "thrid", "embed, lstm, block, "),
        ("device", "`placement` must name existing devices.", "gpu:0 of this process", "cpu:0, cpu:1."),
        ("by function, a task", NO_TASK, "worker 0 for the layer embed, and no cluster", ""),
        ("by function, nonsense", NO_PLACE, "7", ""),
        ("not built", NOT_PLACED, "a model that is not built", ""),
        ("placed", NOT_PLACED, "a model that was placed before", ""),
        ("trained", NOT_PLACED, "a model that was trained", ""),
        ("in the scope", NOT_PLACED, "a call in the scope", ""),
    ],
)
def test_what_cannot_be_placed(found, case, rule, received, choice):
    assert found[case][:3] == ["ArgumentError", rule, received]
    assert choice in found[case][3]


@pytest.mark.parametrize(
    ("name", "task", "device"),
    [
        ("worker 1", "worker 1", None),
        ("Worker 1 GPU:0", "worker 1", "GPU:0"),
        ("chief", "chief 0", None),
        ("chief cpu:1", "chief 0", "CPU:1"),
        ("gpu:3", "None", "GPU:3"),
        ("/job:worker/replica:0/task:2/device:GPU:1", "worker 2", "GPU:1"),
        ("/job:chief/task:0", "chief 0", None),
    ],
)
def test_names_of_places(name, task, device):
    place = parse_place(name)
    assert (str(place.task), place.device) == (task, device)


@pytest.mark.parametrize(
    "name", ["", " ", "worker", "worker x", "worker gpu:0", "worker 1gpu:0", "ps 0", "gpu", 7, None, "gpu:0 "]
)
def test_what_is_no_place(name):
    with pytest.raises(ArgumentError, match=NO_PLACE):
        parse_place(name)


NEEDED = 'The strategy "model_parallel" needs `placement`: places by the names of layers, or a function.'


@pytest.mark.parametrize(
    ("placement", "arguments", "rule", "received"),
    [
        (None, {}, NEEDED, "None"),
        ({}, {}, NEEDED, "{}"),
        ({1: "worker 0"}, {}, NEEDED, "{1: 'worker 0'}"),
        ("worker 0", {}, NEEDED, "'worker 0'"),
        (["worker 0"], {}, NEEDED, "['worker 0']"),
        ({"a": "server 0"}, {}, NO_PLACE, "'server 0'"),
        ({"a": "worker 2"}, {}, NO_TASK, "worker 2 for the layer a, and 2 workers and a chief"),
        ({"a": "worker 0"}, {"cluster": None}, NO_TASK, "worker 0 for the layer a, and no cluster"),
        ({"a": "cpu:7"}, {"cluster": None}, "`placement` must name existing devices.",
         "cpu:7 of this process"),
        ({"a": "worker 0"}, {"cluster": describe_local_cluster(2, ps=1)},
         "The strategy 'model_parallel' has no use for parameter servers.",
         "2 workers and 1 parameter server, by the cluster"),
        ({"a": "worker 0"}, {"cluster": tfdistr.ssh_cluster(["localhost"])},
         "The strategy 'model_parallel' trains in one process; MPI ranks cannot compute for it.",
         "1 worker, by the cluster"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_anything_starts(
    placement, arguments, rule, received, monkeypatch
):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    given = {"cluster": TWO, **arguments}
    data = np.ones((4, 1)), np.ones(4)
    with pytest.raises(ArgumentError) as caught:
        tfdistr.distributed_fit(len, *data, strategy=tfdistr.model_parallel(placement), **given)
    assert caught.value.message == rule
    assert caught.value.received == received


def test_only_the_chief_of_workers_trains(monkeypatch):
    plan = tf_config(worker=["a:1", "a:2"], chief="a:3", type="worker", index=0)
    monkeypatch.setenv("TF_CONFIG", plan.to_env()["TF_CONFIG"])
    with pytest.raises(ClusterConfigError, match="only the chief may call distributed_fit") as caught:
        tfdistr.distributed_fit(
            lambda: None,
            np.ones((4, 1)),
            np.ones(4),
            strategy=tfdistr.model_parallel(placement={"a": "worker 0"}),
        )
    assert caught.value.received == "the task worker 0 of a cluster of chief, worker in TF_CONFIG"


@pytest.fixture(scope="module")
def script():
    return runpy.run_path(BY_HAND, run_name="script")


@pytest.fixture(scope="module")
def alone(script):
    return tfdistr.distributed_fit(script["model"], script["X"], script["Y"], **script["ARGUMENTS"])


def test_two_workers_of_a_local_cluster_train_as_one_process_does(script, alone):
    fit = tfdistr.distributed_fit(
        script["model"], script["X"], script["Y"], cluster=TWO,
        strategy=tfdistr.model_parallel(placement=script["PLACEMENT"]),
        validation_data=(script["X"][:9], script["Y"][:9]),
        **script["ARGUMENTS"],
    )  # fmt: skip
    for name, values in alone.history.items():
        np.testing.assert_allclose(fit.history[name], values, atol=BOUND, err_msg=name)
    for own, theirs in zip(alone.model.get_weights(), fit.model.get_weights(), strict=True):
        np.testing.assert_allclose(own, theirs, atol=BOUND)
    assert [row["task"] for row in fit.workers] == ["worker 0", "worker 1", "chief 0"]
    assert {row["status"] for row in fit.workers} == {"done"}
    names = ("workers", "strategy", "communication")
    assert [fit.params[name] for name in names] == [2, "model_parallel", "none"]


def _start(processes, addresses, *, workers):
    hosts = ["--worker-hosts", ",".join(addresses[:workers]), "--chief-host", addresses[-1]]
    servers = [
        processes.start(sys.executable, "-m", "tfdistr", "server", "--type=worker", f"--index={i}", *hosts)
        for i in range(workers)
    ]
    return servers, tf_config(worker=addresses[:workers], chief=addresses[-1], type="chief", index=0)


def test_workers_that_are_started_by_hand(processes, tmp_path, alone):
    servers, config = _start(processes, [f"127.0.0.1:{port}" for port in free_ports(3)], workers=2)
    chief = processes.start(sys.executable, BY_HAND, str(tmp_path), env=config.to_env())
    output, _ = chief.communicate(timeout=200)
    assert chief.returncode == 0, output[-3000:]
    for server in servers:
        said, _ = server.communicate(timeout=30)
        assert server.returncode == 0, said
        assert "has ended: the chief is done" in said
    with np.load(tmp_path / "result.npz") as received:
        assert received["workers"] == 2
        for number, weight in enumerate(alone.model.get_weights()):
            np.testing.assert_allclose(received[f"weight_{number}"], weight, atol=BOUND)
