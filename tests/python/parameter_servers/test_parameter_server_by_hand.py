"""Servers that are started by hand, by the command `tfdistr server`, and what ends them."""

import json
import re
import runpy
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from clusters import PROGRAMS
from doc_blocks import blocks
from paths import ROOT
from slow import mostly_slow
from warm import Process

import tfdistr
from tfdistr.cli.main import flag_of
from tfdistr.errors import ClusterConfigError, ClusterStartError
from tfdistr.network.ports import free_ports
from tfdistr.rendezvous.config import tf_config
from tfdistr.servers.chief import join_servers
from tfdistr.servers.server_task import Patience, serve

pytestmark = pytest.mark.timeout(240)
BOUND = 1e-6
COMMAND = [sys.executable, "-m", "tfdistr"]


@pytest.mark.slow(reason="starts four processes with TensorFlow")
def test_a_cluster_that_is_started_by_hand(processes, tmp_path):
    """Two workers and two parameter servers, one of each as books show it, equal one process."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(5)]
    jobs = {"worker": addresses[:2], "ps": addresses[2:4], "chief": addresses[4:]}
    (tmp_path / "cluster.json").write_text(json.dumps(jobs))
    (tmp_path / "tf_config.json").write_text(json.dumps({"cluster": jobs}))
    hosts = [word for job, listed in jobs.items() for word in (flag_of(job), ",".join(listed))]
    servers = [
        processes.start(*COMMAND, "server", *arguments)
        for arguments in (
            ("--type", "ps", "--index", "0", "--cluster", str(tmp_path / "cluster.json")),
            ("--type", "ps", "--index", "1", *hosts),
            ("--type", "worker", "--index=0", *hosts),
            ("--type", "worker", "--index", "1", "--cluster", str(tmp_path / "tf_config.json")),
        )
    ]
    config = tf_config(**jobs, type="chief", index=0)
    program = str(PROGRAMS / "ps_by_hand.py")
    chief = processes.start(sys.executable, program, str(tmp_path), env=config.to_env())
    output, _ = chief.communicate(timeout=200)
    assert chief.returncode == 0, output[-3000:]
    for server, name in zip(servers, ("ps 0", "ps 1", "worker 0", "worker 1"), strict=True):
        said, _ = server.communicate(timeout=30)
        assert server.returncode == 0, said
        assert f"{name} of the cluster serves at 127.0.0.1:" in said
        assert f"{name} has ended: the chief is done" in said

    script = runpy.run_path(program, run_name="script")
    fit = tfdistr.distributed_fit(script["model"], script["X"], script["Y"], **script["ARGUMENTS"])
    result = json.loads((tmp_path / "result.json").read_text())
    for name, values in fit.history.items():
        np.testing.assert_allclose(result["history"][name], values, atol=BOUND, err_msg=name)
    assert result["report"] == {
        "global_step": 12, "local_steps": result["report"]["local_steps"], "dropped": [0, 0],
        "not_computed": 0,
    }  # fmt: skip
    assert sum(result["report"]["local_steps"]) == 24
    assert result["kinds"][:3] == ["ready", "train_begin", "epoch_begin"]
    import keras

    saved = keras.models.load_model(tmp_path / "model.keras")
    with np.load(tmp_path / "result.npz") as received:
        for number, weight in enumerate(fit.model.get_weights()):
            np.testing.assert_allclose(received[f"weight_{number}"], weight, atol=BOUND)
        np.testing.assert_allclose(
            received["predicted"], saved.predict(script["X"][:5], verbose=0), atol=BOUND
        )


# A chief whose callback halts a server, and fails then. It ends as any script does.
FAILS = """
import os, runpy, signal, sys
import keras

script = runpy.run_path(sys.argv[1], run_name="script")

class Halts(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print("halts", flush=True)
        os.kill(int(sys.argv[2]), signal.SIGSTOP)
        raise ValueError("bad loss")

from tfdistr.rendezvous.config import cluster_from_env
from tfdistr.training.job_arguments import make_job
from tfdistr.parameter_servers.coordinator import train_on_servers

job = make_job(script["model"], script["X"], script["Y"], num_workers=1, callbacks=[Halts()], epochs=2)
try:
    train_on_servers(job, cluster_from_env(), lambda kind, **fields: print(kind, flush=True))
except ValueError as error:
    print("said:", error, flush=True)
    sys.exit(7)
"""

# A chief with a training loop of its own, which dismisses nobody.
LOOPS = """
import os, signal, sys
import tfdistr

strategy = tfdistr.make_strategy("parameter_server")

import tensorflow as tf

with strategy.scope():
    weight = tf.Variable(1.0)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
step = tf.function(lambda: weight.assign_add(1.0))
coordinator.schedule(step)
coordinator.join()
print("halts", flush=True)
if sys.argv[2] != "0":
    os.kill(int(sys.argv[2]), signal.SIGSTOP)
sys.exit(7)
"""


# Slow: starts four processes with TensorFlow.
@pytest.mark.parametrize(
    ("chief", "stopped"),
    mostly_slow([(FAILS, 0), (LOOPS, 0), (LOOPS, 1), (LOOPS, None)], quick=[(FAILS, 0), (LOOPS, 1)]),
    ids=["fails-worker", "loops-worker", "loops-ps", "loops-none"],
)
def test_a_chief_ends_although_a_server_is_stopped(processes, chief, stopped, tmp_path):
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    jobs = {"worker": addresses[:1], "ps": addresses[1:2], "chief": addresses[2:]}
    hosts = [f"{flag_of(job)}={','.join(listed)}" for job, listed in jobs.items()]
    servers = [
        processes.start(*COMMAND, "server", f"--type={job}", "--index=0", *hosts, "--chief-timeout=1")
        for job in ("worker", "ps")
    ]
    config = tf_config(**jobs, type="chief", index=0)
    program = str(PROGRAMS / "ps_by_hand.py")
    pid = servers[stopped].pid if stopped is not None else 0
    script = tmp_path / "chief.py"
    script.write_text(chief)
    process = processes.start(sys.executable, str(script), program, str(pid), env=config.to_env())
    assert any(line == "halts\n" for line in process.stdout)
    began = time.monotonic()
    output, _ = process.communicate(timeout=60)
    assert time.monotonic() - began < 30
    assert process.returncode == 7, output
    assert chief == LOOPS or "said: bad loss" in output
    for server in servers:
        if stopped is None or server is not servers[stopped]:
            # It was told, or has seen that its chief is gone.
            assert server.wait(timeout=30) == (0 if chief == FAILS else 1)


@pytest.mark.slow(reason="starts four processes with TensorFlow")
def test_the_loop_of_the_page(processes, tmp_path):
    (block,) = [block for block in blocks(ROOT / "docs/parameter-servers.md") if block.mark == "run by"]
    assert Path(block.detail) == Path(__file__).relative_to(ROOT)
    jobs = {
        job: [f"127.0.0.1:{port}" for port in free_ports(count)]
        for job, count in {"worker": 2, "ps": 1, "chief": 1}.items()
    }
    hosts = [f"{flag_of(job)}={','.join(listed)}" for job, listed in jobs.items()]
    servers = [
        processes.start(
            *COMMAND, "server", f"--job_name={job}", f"--task_index={index}", *hosts, "--chief-timeout=1"
        )
        for job, index in (("worker", 0), ("worker", 1), ("ps", 0))
    ]
    script = tmp_path / "chief.py"
    script.write_text(block.code)
    env = tf_config(**jobs, type="chief", index=0).to_env()
    output, _ = processes.start(sys.executable, str(script), env=env).communicate(timeout=100)
    losses = [float(loss) for loss in re.findall(r"^epoch \d: loss ([\d.]+)$", output, re.MULTILINE)]
    assert len(losses) == 5, output
    assert losses[4] < 0.5 * losses[0]
    assert [server.wait(timeout=30) for server in servers] == [1, 1, 1]


def test_servers_do_not_wait_for_ever(processes):
    """One whose chief came and is gone, one whose chief never comes, and one whose port is taken."""
    ports = free_ports(6)
    with socket.socket() as chief, socket.socket() as other:
        chief.bind(("127.0.0.1", ports[0]))
        chief.listen()
        other.bind(("127.0.0.1", ports[3]))
        other.listen()

        def server(job: str, port: int, chiefs_port: int, *arguments: str) -> Process:
            hosts = {"chief": chiefs_port, "worker": ports[4], job: port}
            listed = [f"{flag_of(name)}=127.0.0.1:{number}" for name, number in hosts.items()]
            return processes.start(*COMMAND, "server", f"--type={job}", "--index=0", *listed, *arguments)

        abandoned = server("ps", ports[1], ports[0], "--chief-timeout", "1")
        forgotten = server("ps", ports[2], ports[5], "--start-timeout", "1")
        blocked = server("ps", ports[3], ports[0])
        assert any("serves at" in line for line in abandoned.stdout)
        connection, _ = chief.accept()  # it has looked
        connection.close()
        said, _ = blocked.communicate(timeout=60)
    assert blocked.returncode == 1
    assert re.search(r"Cannot listen on the port of the task's address\.", said), said
    assert "Stop the process that uses this task's port, or give the task another address." in said
    said, _ = abandoned.communicate(timeout=60)
    assert abandoned.returncode == 1
    assert "Lost connection to the chief.\nReceived: no answer at" in said
    said, _ = forgotten.communicate(timeout=60)
    assert forgotten.returncode == 1
    assert "The chief did not start within 1 s." in said


def test_a_chief_that_comes_back_is_waited_for():
    (port,) = free_ports(1)
    patience = Patience(f"127.0.0.1:{port}", start_timeout=60, chief_timeout=60)
    patience.look()
    for _ in range(2):
        with socket.socket() as chief:
            chief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            chief.bind(("127.0.0.1", port))
            chief.listen()
            patience.look()
        patience.look()
    patience._chief_timeout = 0.0
    with pytest.raises(ClusterStartError, match="Lost connection to the chief"):
        patience.look()


def test_servers_that_do_not_come_are_named():
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    config = tf_config(worker=addresses[0], ps=addresses[1], chief=addresses[2], type="chief", index=0)
    with pytest.raises(ClusterStartError) as caught:
        join_servers(config, 0.3)
    assert caught.value.received == f"no worker 0 ({addresses[0]}), ps 0 ({addresses[1]})"


@pytest.mark.parametrize(
    ("task", "rule"),
    [
        ({"type": "chief"}, "A server must be a task of the job ps or worker."),
        ({"type": "worker", "ps": None, "chief": None}, "A cluster with parameter servers must have a chief"),
    ],
)
def test_tasks_that_are_no_servers(task, rule):
    config = tf_config(**{"worker": "a:1", "ps": "b:1", "chief": "c:1", "index": 0, **task})
    with pytest.raises(ClusterConfigError) as caught:
        serve(config)
    assert str(caught.value).startswith(rule)


def test_only_the_chief_joins_the_servers():
    config = tf_config(worker="a:1", ps="b:1", chief="c:1", type="worker", index=0)
    with pytest.raises(ClusterConfigError, match=r"only the chief may call distributed_fit\(\)"):
        join_servers(config, 1.0)
