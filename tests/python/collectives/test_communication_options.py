"""TensorFlow's ``CommunicationOptions``: what each option does, and what is refused."""

import re

import pytest
import tensorflow as tf
from clusters import run_cluster
from refusals import assert_says

import tfdistr
from tfdistr.collectives.communication_options import Exchange, check_exchange
from tfdistr.collectives.interface import BYTES_PER_PACK
from tfdistr.errors import ArgumentError

pytestmark = pytest.mark.timeout(200)

Options = tf.distribute.experimental.CommunicationOptions
Implementation = tf.distribute.experimental.CommunicationImplementation
Resolver = tf.distribute.cluster_resolver.SimpleClusterResolver


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (Options(), Exchange("auto", BYTES_PER_PACK, None)),
        (Options(implementation=Implementation.RING), Exchange("ring", BYTES_PER_PACK, None)),
        (Options(implementation=Implementation.NCCL), Exchange("nccl", BYTES_PER_PACK, None)),
        (Options(implementation="nccl"), Exchange("nccl", BYTES_PER_PACK, None)),
        (Options(bytes_per_pack=50 * 1024**2), Exchange("auto", 50 * 1024**2, None)),
        (Options(bytes_per_pack=1e6, timeout_seconds=90), Exchange("auto", 1_000_000, 90.0)),
        (Options(timeout_seconds=0), Exchange("auto", BYTES_PER_PACK, None)),
    ],
)
def test_each_option_has_its_counterpart(options, expected):
    assert check_exchange(options, None, None) == expected


def test_without_options_the_own_arguments_count():
    assert check_exchange(None, None, None) == Exchange("auto", BYTES_PER_PACK, None)
    assert check_exchange(None, "ring", 0) == Exchange("ring", 0, None)
    assert check_exchange(None, Implementation.NCCL, None).communication == "nccl"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"communication_options": Options(), "communication": "auto", "bytes_per_pack": 1},
         ["`communication` and `bytes_per_pack`", "Received: communication='auto', bytes_per_pack=1 beside"]),
        ({"communication_options": Implementation.NCCL},
         ["`communication_options` must be a",
          f"Received: an object of class {Implementation.__module__}.CommunicationImplementation",
          "Fix: Pass tf.distribute.experimental.CommunicationOptions(implemen"]),
        *(
            ({"communication_options": Options(timeout_seconds=value)},
             ["`timeout_seconds` of", f"Received: {value!r}",
              "Fix: Pass timeout_seconds=600.0, for example; 0 and None mean no"])
            for value in (-1, "600", float("nan"), float("inf"), True)
        ),
        ({"cluster_resolver": {"worker": ["a:1"]}},
         ["`cluster_resolver` (the first argument)", "Received: a dictionary of length 1",
          "Fix: Leave it out: TF_CONFIG, mpiexec or srun describes the"]),
    ],
)  # fmt: skip
def test_what_is_refused(arguments, said):
    with pytest.raises(ArgumentError) as caught:
        tfdistr.MultiWorkerMirroredStrategy(**arguments)
    assert_says(caught.value, said)


@pytest.mark.parametrize(
    ("first", "name"),
    [("ring", "ring"), ("mpi", "mpi"), (Implementation.NCCL, "nccl"), ("gloo", "auto")],
)
def test_a_communication_in_the_first_place_is_refused_with_the_name_of_its_argument(first, name):
    with pytest.raises(ArgumentError) as caught:
        tfdistr.MultiWorkerMirroredStrategy(first)
    assert "`cluster_resolver` (the first argument) must be" in caught.value.message
    assert caught.value.fix == f'Pass communication="{name}" by its name.'


def test_a_strategy_by_name_takes_them(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "")
    strategy = tfdistr.make_strategy(communication_options=Options(implementation=Implementation.RING))
    assert strategy.num_workers == 1
    alone = tfdistr.make_strategy(cluster_resolver=Resolver(tf.train.ClusterSpec({})))
    assert alone.num_workers == 1


def test_a_resolver_can_choose_the_gpus_before_tensorflow_looks_for_them(monkeypatch):
    seen = []

    class Choosing(Resolver):
        def cluster_spec(self):
            seen.append("resolver")
            return super().cluster_spec()

    visible = tf.config.get_visible_devices
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: seen.append("GPUs") or visible(kind))
    options = Options(implementation=Implementation.NCCL)
    tfdistr.MultiWorkerMirroredStrategy(Choosing(tf.train.ClusterSpec({})), options)
    assert "GPUs" in seen
    assert seen[0] == "resolver"


@pytest.mark.parametrize("mpi", [False, True], ids=["ring", "MPI"])
def test_a_collective_that_takes_too_long_is_an_error(mpi):
    ended = run_cluster("slow_peer.py", 2, ["2", "8", "AUTO" if mpi else "RING"], mpi=mpi, timeout=100)
    output = "".join(process.output for process in ended)
    (seconds,) = re.findall(r"exceeded after ([\d.]+) s", output)
    assert 2 <= float(seconds) < 8, output
    assert "DeadlineExceededError" in output
    assert all(process.status != 0 for process in ended), output
    assert "sum: 2" not in output


def test_a_limit_of_0_is_none():
    ended = run_cluster("slow_peer.py", 2, ["0", "3", "RING"], timeout=100)
    assert [process.status for process in ended] == [0] * len(ended)
    assert "".join(process.output for process in ended).count("sum: 2") == 2
