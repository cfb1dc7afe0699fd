"""Strategies for the devices of one process; test_equality.py compares many models."""

import json

import keras
import pytest
import tensorflow as tf
from clusters import run_well
from xla_dumps import operations

import tfdistr
from tfdistr.errors import ArgumentError

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    file = tmp_path_factory.mktemp("mirrored") / "found.json"
    run_well("mirrored.py", 1, [str(file)], timeout=250)
    return json.loads(file.read_text()) | {"operations": operations(file.with_suffix(".json.xla"))}


def test_one_device_trains_as_no_strategy_does(found):
    assert found["one device"] == 0


def test_one_device_is_the_one_that_was_named(found):
    assert found["device"].endswith("CPU:1")


def test_two_devices_are_one_worker(found):
    assert found["params"] == ["mirrored", 1]


def test_cross_device_ops_sum_over_the_devices(found):
    assert found["calls"] > 0
    assert max(found["cross_device_ops"].values()) < 1e-6


def test_a_model_that_gathers_trains_and_predicts_as_on_one_device_and_leaves_nothing(found):
    assert found["gathering"]["apart"] < 1e-6
    assert found["gathering"]["left"] == []


def test_the_gradients_of_a_mean_are_reported(found):
    (said,) = found["mean of rows"]
    assert "sums the gradients of 2 devices: they are 2 times those of one worker." in said


@pytest.mark.parametrize(
    "name",
    ["cpu:0", "/cpu:0", "CPU", "/device:CPU:0", "/job:localhost/replica:0/task:0/device:CPU:0", "logical"],
)
def test_devices_have_the_names_that_tensorflow_takes(name):
    device = tf.config.list_logical_devices("CPU")[0] if name == "logical" else name
    for strategy in (tfdistr.OneDeviceStrategy(device), tfdistr.MirroredStrategy([device])):
        with strategy.scope():
            assert keras.Variable(1.0).value.device.endswith("device:CPU:0")


@pytest.mark.parametrize("name", ["gpu:7", "", "tpu", "/job:worker/task:1/device:CPU:0", 3, ["cpu:0"]])
def test_other_devices_are_refused(name):
    with pytest.raises(ArgumentError, match="`devices` must name devices that this process has, each once"):
        tfdistr.MirroredStrategy([name])
    with pytest.raises(ArgumentError, match="`device` must name devices that this process has, each once"):
        tfdistr.OneDeviceStrategy(name)


def test_other_cross_device_ops_are_refused():
    with pytest.raises(ArgumentError) as caught:
        tfdistr.make_strategy("mirrored", cross_device_ops="nccl")
    assert caught.value.received == "a text ('nccl')"


def test_each_device_counts_as_a_worker_for_batch_and_learning_rate(found):
    assert found["per worker"] == [16, 2.0]


def test_xla_compiles_what_lies_between_the_exchanges(found):
    assert found["jit_compile"] < 1e-6
    assert found["xla"] == ["nothing", "between exchanges"]
    assert {"MatMul", "ReluGrad"} <= found["operations"]
    assert found["warnings"] == []


@pytest.mark.parametrize(
    ("case", "received"),
    [
        ("accumulation", "gradient_accumulation_steps=2"),
        ("average", "use_ema=True"),
        ("in a scale", "use_ema=True"),
        ("executions", "steps_per_execution=2"),
    ],
)
def test_what_several_devices_cannot_do_is_refused(found, case, received):
    kind, message, value, _ = found[case]
    assert message.startswith("Several devices of one process cannot train with R functions, ")
    assert (kind, value) == ("ArgumentError", received)


def test_sparse_batches_are_refused(found):
    kind, _, received, _ = found["sparse"]
    assert kind == "DataShardError"
    assert "SparseTensorSpec" in received


def test_the_strategies_by_name():
    assert type(tfdistr.make_strategy("mirrored", devices=["cpu:0"])) is tfdistr.MirroredStrategy
    assert type(tfdistr.make_strategy("one_device")) is tfdistr.OneDeviceStrategy
    with pytest.raises(ArgumentError) as caught:
        tfdistr.make_strategy("one_device", devices=["cpu:0"])
    assert caught.value.message == "The strategy 'one_device' has the options 'device'."


def test_a_cluster_of_several_workers_is_refused(monkeypatch):
    plan = tfdistr.tf_config(worker=["127.0.0.1:10001", "127.0.0.1:10002"])
    monkeypatch.setenv("TF_CONFIG", plan[0].to_json())
    with pytest.raises(ArgumentError) as caught:
        tfdistr.distributed_fit(keras.Sequential, [1.0], strategy="one_device")
    assert caught.value.message == "The strategy 'one_device' trains in one process."
    assert caught.value.received == "2 workers, by TF_CONFIG"


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        (tfdistr.multi_worker_mirrored(), 4),
        (tfdistr.one_device(), 1),
        (tfdistr.mirrored(devices=["gpu:0", "gpu:1"]), 2),
        (tfdistr.mirrored(devices="gpu:0"), 1),
        (tfdistr.mirrored(), 1),  # the GPUs of this machine: none
    ],
    ids=str,
)
def test_how_many_share_a_batch(strategy, shares):
    cluster = tfdistr.local_cluster(strategy.max_workers or 4)
    assert strategy.destination(cluster).shares == shares
