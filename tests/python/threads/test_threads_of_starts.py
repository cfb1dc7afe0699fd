"""What others have reported of workers that start or end: docs/threads.md has a row for each test."""

import os
import sys
from collections.abc import Iterator

import netns
import pytest
import tensorflow as tf
from clusters import PROGRAMS, run_commands

import tfdistr
from tfdistr.errors import ClusterStartError

WORKERS = ["localhost:12345", "localhost:23456"]


def test_tensorflow_34568(monkeypatch):
    """The strategy is made after something has used TensorFlow, and TensorFlow's server has to start."""
    monkeypatch.setenv("TF_CONFIG", tfdistr.tf_config(worker=WORKERS)[0].to_json())
    assert int(tf.constant(1)) == 1
    with pytest.raises(ClusterStartError) as caught:
        tfdistr.MultiWorkerMirroredStrategy(communication="ring")
    assert (
        caught.value.received
        == "TensorFlow has already set up its devices (a tensor, a model or a dataset was made)"
    )


@pytest.fixture
def apart() -> Iterator[netns.Namespaces]:
    """Two machines, between which a firewall drops what they send."""
    if why := netns.missing():
        pytest.skip(why)
    made = netns.Namespaces(f"tt{os.getpid() % 100000}", netns.own_net("198.19"), "ab")
    try:
        made.add()
        for name, other in (("a", "b"), ("b", "a")):
            made.isolate(name)
            # Without its hardware address, the machine itself would say that there is no other one.
            there = [made.address(other), "lladdr", "02:00:00:00:00:01", "dev", "eth0"]
            netns.run("ip", "-n", made.of(name), "neigh", "add", *there)
        yield made
    finally:
        made.remove()


@pytest.mark.slow(reason="waits for timeouts")
def test_tensorflow_46931(apart):
    """Both workers are started, but cannot connect: each says in time which address does not answer."""
    addresses = [f"{apart.address(name)}:8081" for name in "ab"]
    start = [sys.executable, str(PROGRAMS / "start.py"), "4"]
    commands = [["ip", "netns", "exec", apart.of(name), *start] for name in "ab"]
    environments = [os.environ | one for one in tfdistr.tf_config(worker=addresses).environments()]
    ended = run_commands(commands, environments, 120, start_warm=False)
    for worker, other in ((0, 1), (1, 0)):
        assert ended[worker].status == 0, ended[worker].output[-3000:]
        rule, received, fix, after = ended[worker].output.splitlines()[-4:]
        assert rule == "Not all workers of the cluster joined within 4 s."
        assert f"waited for worker {other} ({addresses[other]}), which does not answer" in received
        assert fix.endswith("where the others can reach its address.")
        assert float(after.split()[1]) < 20
