"""The strategy in a loop of one's own, at the start and at the end. Keras's fit is in test_equality.py."""

import json
import os
import runpy
import signal
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from clusters import PROGRAMS, run_cluster, run_commands, run_well
from paths import ROOT

import tfdistr
from tfdistr import tf_internals
from tfdistr.network.ports import free_ports
from tfdistr.rendezvous.config import bypass_proxy
from tfdistr.strategies.join import start_error


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("custom_loop")
    run_well("custom_loop.py", 2, [str(folder)], timeout=120)
    return [json.loads((folder / f"{index}.json").read_text()) for index in range(2)]


def test_each_worker_knows_its_place(found):
    assert [(w["workers"], w["index"], w["chief"]) for w in found] == [(2, 0, True), (2, 1, False)]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("sum", 3.0),
        ("sum by name", 3.0),
        ("mean", [1.0, 2.0]),
        ("sum of rows", 6.0),
        ("mean of unequal rows", pytest.approx([2 / 3, 2 / 3])),
        ("nested", {"one": 3.0, "more": [[2.0, 4.0], 3.0]}),
        ("gathered", [[0, 0], [1, 1], [1, 1]]),
        ("gathered columns", [[0, 1, 1], [0, 1, 1]]),
        ("all-reduced", 3.0),
        ("all-reduced nest", [[1.0, 2.0], 1.5]),
        ("all-gathered", [[0, 0], [1, 1], [1, 1]]),
    ],
)
def test_values_go_between_the_workers(found, what, expected):
    assert [worker["values"][what] for worker in found] == [expected, expected]


ROWS = np.arange(6, dtype="float32").reshape(3, 2)


def test_gather_on_one_worker_returns_its_input():
    assert tfdistr.gather(ROWS).numpy().tolist() == ROWS.tolist()
    with tfdistr.make_strategy("one_device", device="cpu:0").scope():
        assert tfdistr.gather([True, False]).numpy().tolist() == [True, False]


@pytest.mark.parametrize(
    ("value", "received"),
    {
        "ragged": (tf.ragged.constant([[1], [2, 3]]), "RaggedTensor"),
        "sparse": (tf.sparse.from_dense([[0, 1]]), "SparseTensor"),
        "a number": (1.0, "a float32 of shape ()"),
        "text": (["a", "b"], "a string of shape (2,)"),
        "no tensor": (object(), "an object of class object"),
    }.values(),
)
def test_gather_refuses_what_is_no_dense_tensor_of_rows(value: Any, received: str):
    with pytest.raises(tfdistr.ArgumentError, match="must be a dense tensor of numbers") as error:
        tfdistr.gather(value)
    assert received in error.value.received
    assert "to_tensor(shape=...)" in error.value.fix


def test_gather_is_refused_outside_of_a_step(found):
    rule = "gather() must be called in a step of Keras's fit(), evaluate() or predict()."
    for worker in found:
        told = worker["gathers"]
        assert told["scope"] == [rule, "a call in the scope of a strategy, for 2 replicas"]
        assert told["loop"] == [rule, "a call in strategy.run(), for 2 replicas"]
        assert told["outside"] == [[5.0]]


def test_each_replica_has_its_number(found):
    assert [worker["values"]["id"] for worker in found] == [0, 1]


def test_variables_start_as_the_chiefs_and_are_summed_when_read_or_reduced(found):
    assert [worker["from_the_chief"] for worker in found] == [[10.0, 3.0, 3.0]] * 2


def test_a_loop_of_ones_own_equals_one_process(found):
    for worker in found:
        assert worker["trained"]["difference"] <= 1e-6
        assert worker["trained"]["losses"] == pytest.approx(worker["trained"]["losses of one"], abs=1e-6)


def test_the_gradients_of_a_mean_are_doubled_and_the_chief_says_so_once(found):
    assert [worker["mean_of_rows"]["moves"] for worker in found] == [[0.2, 0.4, 0.4]] * 2
    said = "the optimizer sums the gradients of 2 workers: they are 2 times those of one worker."
    ((message, file),), of_other = (worker["mean_of_rows"]["said"] for worker in found)
    assert (said in message, file, of_other) == (True, "custom_loop.py", [])


def test_a_function_may_have_the_name_of_kerass_step(found):
    for worker in found:
        assert worker["named"]["results"] == [-1.0, 2.0]
        assert worker["named"]["watched"] == ""  # a report of fit, which nobody would read


def test_the_batch_of_a_step_may_have_a_name(found):
    for worker in found:
        many, one = worker["named"]["kernels"]
        assert many[0] == pytest.approx(one[0], rel=1e-6)
        assert one[0] != [1.0]


@pytest.mark.parametrize("policy", ["default", "FILE", "DATA", "HINT", "OFF", "unseeded"])
def test_every_example_goes_to_one_worker(found, policy):
    ids = [worker["split"][policy] for worker in found]
    assert sorted(ids[0] + ids[1]) == list(range(6 if policy == "default" else 12))
    assert all(ids)


@pytest.mark.parametrize("seed", ["drawn", "set"])
@pytest.mark.parametrize("shuffle", ["seed=1", "no seed", "inside"])
def test_workers_shuffle_alike(found, seed, shuffle):
    assert sorted(in_order(found, seed, shuffle)) == list(range(12))


def test_with_a_global_seed_the_order_is_that_of_one_worker(found):
    before = tf_internals.global_seed()
    tf.random.set_seed(5)
    try:
        numbers = tf.data.Dataset.range(12)
        alone = {"seed=1": numbers.shuffle(12, seed=1), "no seed": numbers.shuffle(12)}
        for shuffle, dataset in alone.items():
            assert in_order(found, "set", shuffle) == [int(number) for number in dataset]
    finally:
        tf.random.set_seed(before)


def test_without_one_the_order_is_another_in_every_run(found):
    before = tf_internals.global_seed()
    tf.random.set_seed(87654321)  # TensorFlow's default, which would repeat what is shuffled in functions
    try:
        inside = tf.data.Dataset.range(1).flat_map(lambda _: tf.data.Dataset.range(12).shuffle(12))
        assert in_order(found, "drawn", "inside") != [int(number) for number in inside]
    finally:
        tf.random.set_seed(before)


def in_order(found, seed: str, shuffle: str) -> list[int]:
    """What two workers read of batches of 4, as one would."""
    shares = [np.reshape(worker["orders"][seed][shuffle], [-1, 2]) for worker in found]
    return np.concatenate(shares, axis=1).ravel().tolist()


def test_a_policy_of_the_user_is_respected(found):
    assert [worker["split"]["FILE"] for worker in found] == [list(range(6)), list(range(6, 12))]


def test_fit_on_files_that_tensorflow_shares_out(found):
    mean_of_squares = sum(i**2 for i in range(12)) / 12
    assert [worker["fit_on_files"] for worker in found] == [[pytest.approx(mean_of_squares)] * 2] * 2


def test_a_barrier_that_a_worker_does_not_come_to(found):
    lines = found[0]["barrier"].splitlines()
    assert lines[0] == "Not all 2 workers reached the barrier 'alone' within 1.5 s."
    assert lines[1].startswith("Received: Not all ranks joined within ")
    assert lines[2] == "Fix: See the log of the missing worker."


def test_workers_that_end_at_different_moments_end_well():
    """The second before the chief, the third after it."""
    for worker in run_cluster("leave.py", 3, ["2", "end"], ["0", "end"], ["4", "end"], timeout=120):
        assert "workers: 3\ndone\n" in worker.output
        assert worker.status == 0


@pytest.mark.parametrize("failing", [0, 1])
def test_a_failure_reaches_the_worker_that_waits(failing):
    ends = [["2", "raise"], ["0", "wait"]]
    workers = run_cluster("leave.py", 2, *(ends if failing == 0 else ends[::-1]), timeout=120)
    assert [worker.status for worker in workers] == [1, 1]
    assert "\nValueError: the loss is green\n" in workers[failing].output
    assert f"failure of worker {failing}: ValueError: the loss is green" in workers[1 - failing].output
    assert "\ndone\n" not in workers[1 - failing].output


@pytest.mark.parametrize("early", [0, 1])
def test_a_worker_that_still_works_hears_that_a_program_has_ended(early):
    ends = [["0", "early"], ["0", "wait"]]
    workers = run_cluster("leave.py", 2, *(ends if early == 0 else ends[::-1]), timeout=60)
    assert workers[1 - early].status == 1
    said = f"failure of worker {early}: its program has ended, but other workers have not."
    assert said in workers[1 - early].output


def run(program: str, *arguments: str, config: str = "") -> str:
    """The output of a process, which must end well."""
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    (ended,) = run_commands([command], [os.environ | {"TF_CONFIG": config}], 200)
    assert ended.status == 0, ended.output[-3000:]
    return ended.output


def test_a_worker_that_is_missing_is_named():
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    output = run("start.py", "4", config=tfdistr.tf_config(worker=addresses)[0].to_json())
    rule, received, _, after = output.splitlines()[-4:]  # TensorFlow may have looked for GPUs before
    assert rule == "Not all workers of the cluster joined within 4 s."
    assert received == (
        f"Received: worker 0 ({addresses[0]}): waited for worker 1 ({addresses[1]}), where nobody listens"
    )
    assert float(after.split()[1]) < 60


def test_several_devices_in_a_worker_work_as_in_tensorflow_with_a_warning():
    lines = run("local_replicas.py").splitlines()
    warning, result = (line for line in lines if "cuInit" not in line)  # TensorFlow's, where there is no GPU
    assert warning == (
        "TfdistrWarning This worker has 2 devices, so TensorFlow's own replica threads are used: R functions "
        "in the model and Keras 3's fit on several workers fail there. Start one process per device."
    )
    result = json.loads(result)
    assert (result["replicas"], result["workers"]) == (2, 1)
    x = np.arange(12.0).reshape(6, 2)
    first = (x.sum(1) ** 2).mean()
    assert result["losses"][0] == pytest.approx(first)
    assert result["losses"][1] < first


GPU = "CUDA runtime implicit initialization on GPU:0 failed. Status: out of memory"
MISSING = "Barrier timed out.\nSome timed out task names:\n/job:worker/replica:0/task:1\n\nThe first: /job:w"


@pytest.mark.parametrize(
    ("error", "message", "received"),
    [
        (tf.errors.InternalError(None, None, f"{GPU}\nmore"), "worker 0 (b:2) cannot use its GPU.", GPU),
        (RuntimeError("no such device\nand more"), "Not all workers of the cluster joined within 5 s.",
         "worker 0 (b:2): no such device"),
        (tf.errors.DeadlineExceededError(None, None, MISSING), "Not all workers of the cluster joined",
         "worker 0 (b:2): waited for worker 1 (c:3)"),
        (tf.errors.DeadlineExceededError(None, None, "late"), "Not all workers of the cluster joined",
         "worker 0 (b:2): waited for chief 0 (a:1)"),  # the leader
        *((tf.errors.UnknownError(None, None, f"{text}\nmore"), "Cannot listen on the port of",
           f"worker 0 (b:2): {text}") for text in ("Could not start gRPC server", "Address already in use")),
    ],
)  # fmt: skip
def test_errors_of_tensorflow_at_the_start(monkeypatch, error, message, received):
    monkeypatch.setenv("TF_CONFIG", tfdistr.tf_config(chief="a:1", worker=["b:2", "c:3"])[1].to_json())
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    told = start_error(error, resolver, 5.0)
    assert told.message.startswith(message)
    assert told.received == received
    assert ("nvidia-smi" in told.fix) == (received == GPU)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({}, "10.0.0.1,host"),
        ({"no_proxy": "a.example,host"}, "a.example,host,10.0.0.1"),
        ({"no_proxy": "a.example", "no_grpc_proxy": "b.example"}, "b.example,10.0.0.1,host"),
    ],
)
def test_workers_are_not_looked_for_behind_a_proxy(monkeypatch, known, expected):
    monkeypatch.setenv("no_grpc_proxy", "")
    monkeypatch.setenv("no_proxy", "")
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    bypass_proxy(["10.0.0.1:2222", "host:2222", "10.0.0.1:2223"])
    assert os.environ["no_grpc_proxy"] == expected  # noqa: SIM112 (gRPC's name)


def test_without_tf_config_it_is_a_strategy_for_one_worker(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "")
    strategy = tfdistr.MultiWorkerMirroredStrategy()
    assert (strategy.num_workers, strategy.worker_index, strategy.is_chief) == (1, 0, True)
    assert float(strategy.reduce("SUM", tf.constant(2.0), axis=None)) == 2.0
    strategy.barrier("nobody else", 1)
    strategy.leave()
    with strategy.scope():
        assert tfdistr.auto_shard(
            tf.data.Dataset.range(3)
        ).options().experimental_distribute.auto_shard_policy == (tf.data.experimental.AutoShardPolicy.OFF)


def test_sigterm_ends_a_worker_though_tensorflow_notes_it(tmp_path):
    for worker in run_cluster("terminated.py", 2, [str(tmp_path)], timeout=120):
        assert "joined" in worker.output
        assert worker.status == -signal.SIGTERM, worker.output


def test_the_arguments_are_those_of_the_installed_tensorflow():
    """The strategies take the arguments of their namesakes in ``tf.distribute``."""
    compared = runpy.run_path(str(ROOT / "tests" / "versions" / "drop_in.py"))
    assert compared["all_differences"]() == []
