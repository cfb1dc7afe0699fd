"""The chief's side of its servers: joining and dismissing them."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from typing import Any

import tensorflow as tf

from tfdistr import tf_internals
from tfdistr.errors import ClusterConfigError, ClusterStartError
from tfdistr.rendezvous.config import ClusterConfig, Task, bypass_proxy, cluster_from_env
from tfdistr.servers.server_task import STOP, THREADS, answers, check_servers, servers_of
from tfdistr.tf_internals.remote_calls import call, forget_servers, keep_forever
from tfdistr.utils import at_exit

_POLL_INTERVAL = 0.1  # seconds
_DISMISSAL = 5.0  # seconds that servers may take to answer the dismissal


def join_servers(
    config: ClusterConfig, start_timeout: float
) -> tf.distribute.experimental.ParameterServerStrategy:
    """Wait for all servers, and make the strategy of the chief."""
    check_servers(config)
    if config.task.type != "chief":
        raise ClusterConfigError(
            'With strategy="parameter_server" only the chief may call distributed_fit().',
            received=f"the task {config.task} in TF_CONFIG",
            fix="Run `tfdistr server` in the processes of workers and parameter servers.",
        )
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        running_servers(config, start_timeout), task_type="chief", task_id=0, rpc_layer="grpc"
    )
    strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
    prepare_dismissal()
    return strategy


def parameter_server_strategy(
    start_timeout: float = 300.0,
) -> tf.distribute.experimental.ParameterServerStrategy:
    """Return the strategy of the chief that TF_CONFIG describes, for a custom training loop."""
    config = cluster_from_env()
    if config is None:
        raise ClusterConfigError(
            "Only the chief can create the strategy of parameter servers.",
            received="no cluster in TF_CONFIG",
            fix='Set TF_CONFIG, as tf_config(worker=, ps=, chief=, type="chief", index=0) gives it.',
        )
    return join_servers(config, start_timeout)


def prepare_dismissal() -> None:
    """Prepare `dismiss_servers` and the exit of this process, while all servers run.

    TensorFlow sends a new function to all servers. If a server is unreachable, TensorFlow waits for it and
    blocks the whole interpreter.
    """
    _stop.cache_clear()
    _stop()
    # Even if all servers are reachable: a server can be stopped after the call.
    at_exit.unregister(keep_forever)
    at_exit.register(keep_forever)


@functools.cache
def _stop() -> Any:
    @tf.function(autograph=False)  # type: ignore[untyped-decorator]
    def stop() -> Any:
        return call(STOP, [], [tf.bool])[0]

    return stop.get_concrete_function()


def dismiss_servers(config: ClusterConfig) -> None:
    """Tell all servers that they are no longer needed.

    A stopped server, or one on a lost machine, would never answer: the wait for it is short.
    """
    until = time.monotonic() + _DISMISSAL
    threads = [
        threading.Thread(target=_dismiss, args=(task, config.jobs[task.type][task.index], until), daemon=True)
        for task in servers_of(config)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))
    if any(thread.is_alive() for thread in threads):
        keep_forever()
    else:
        forget_servers()


def _dismiss(task: Task, address: str, until: float) -> None:
    # TensorFlow calls in the background, and may raise the error of one server in a call of another. So this
    # waits for the answer, and calls again. An exited server needs no message.
    while True:
        with contextlib.suppress(tf.errors.OpError), tf.device(f"/job:{task.type}/task:{task.index}"):
            _stop()().numpy()
            return
        if time.monotonic() > until or not answers(address):
            return
        time.sleep(_POLL_INTERVAL)


def running_servers(config: ClusterConfig, timeout: float) -> tf.train.ClusterSpec:
    """Wait until every server listens, and return the cluster, before this process connects to it.

    TensorFlow would wait forever, and name no server.
    """
    addresses = {task: config.jobs[task.type][task.index] for task in servers_of(config)}
    bypass_proxy(addresses.values())
    until = time.monotonic() + timeout
    while addresses:
        addresses = {task: address for task, address in addresses.items() if not answers(address)}
        if addresses and time.monotonic() > until:
            missing = ", ".join(f"{task} ({address})" for task, address in addresses.items())
            first = next(iter(addresses))
            raise ClusterStartError(
                f"Not all servers of the cluster started within {timeout:g} s.",
                received=f"no {missing}",
                fix="Start each of them: "
                f"tfdistr server --type {first.type} --index {first.index} --cluster cluster.json.",
            )
        if addresses:
            time.sleep(_POLL_INTERVAL)
    if not tf_internals.context_initialized():
        tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    return tf.train.ClusterSpec(dict(config.jobs))
