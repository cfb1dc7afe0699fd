"""The process of a parameter server or a worker, which serves until the chief is done, and its loss."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence

from tfdistr.errors import ClusterConfigError, ClusterStartError, WorkerFailedError
from tfdistr.rendezvous.config import ClusterConfig, Task
from tfdistr.rendezvous.peer_failure import UNREACHED
from tfdistr.rendezvous.protocol import PORT_IN_USE, no_port_error, says_port_in_use
from tfdistr.rendezvous.tf_config import split_address
from tfdistr.utils.arguments import check_positive
from tfdistr.utils.processes import die_with_parent

log = logging.getLogger("tfdistr")

SERVERS = ("worker", "ps")
STOP = "tfdistr/stop"

#: Threads for parallel operations. A call between servers holds a thread while it waits for an answer: with
#: one thread, as on a machine with one core, the servers would wait forever.
THREADS = 16
#: Poll intervals for the chief, after and before its start: it may run for a moment only.
_POLL_INTERVAL, _FIRST_POLL_INTERVAL = 1.0, 0.1
#: Seconds that the answer to the chief's last call needs to go out.
_LAST_ANSWER = 0.5


def serve(
    config: ClusterConfig,
    *,
    start_timeout: float = 3600.0,
    chief_timeout: float = 60.0,
    on_ready: Callable[[], object] = lambda: None,
    offer_more: Callable[[int], object] | None = None,
) -> None:
    """Run the server of a task, "ps" or "worker", until the chief is done.

    Call this once in a process, before other code uses TensorFlow there. A parameter server uses no GPU.

    Args:
        config: The cluster, and the task of this process. The cluster has a chief; an answer at the chief's
            address means that it runs. A cluster without parameter servers is for
            ``strategy="model_parallel"``.
        start_timeout: Seconds that the chief may take to start.
        chief_timeout: Seconds for which the chief may be unreachable; then the server gives up.
        on_ready: Called once the server listens.
        offer_more: Called with the index of a worker, before its server starts: it offers more functions to
            the graphs of the chief.

    Raises:
        ArgumentError: A number of seconds is not above 0.
        ClusterConfigError: The task is not a server, or the cluster has no chief.
        ClusterStartError: The port of the task is in use, or the chief did not start, or was lost.

    Source: TensorFlow's guide "Parameter server training with ParameterServerStrategy"
    (https://www.tensorflow.org/tutorials/distribute/parameter_server_training).

    Example:
        >>> config = tf_config(chief="a:2222", worker=["b:2222"], ps=["c:2222"], type="ps", index=0)
        >>> serve(config)  # doctest: +SKIP
    """
    check_servers(config, needed=("chief",))
    if config.task.type not in SERVERS:
        raise ClusterConfigError(
            "A server must be a task of the job ps or worker.",
            received=f"the task {config.task}",
            fix="Call distributed_fit() in the chief, which is no server.",
        )
    patience = Patience(
        config.jobs["chief"][0],
        check_positive("start_timeout", start_timeout, of=" of seconds", example="3600.0"),
        check_positive("chief_timeout", chief_timeout, of=" of seconds", example="60.0"),
    )
    die_with_parent()
    if config.task.type == "ps":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    told = threading.Event()
    _start(config, told, offer_more)
    log.info("%s serves at %s", config.task, config.address)
    on_ready()
    while not told.wait(_POLL_INTERVAL if patience.came else _FIRST_POLL_INTERVAL):
        patience.look()
    time.sleep(_LAST_ANSWER)


def check_servers(config: ClusterConfig, needed: Sequence[str] = ("chief", *SERVERS)) -> None:
    """Refuse a cluster that lacks a job which parameter servers need."""
    missing = [job for job in needed if job not in config.jobs]
    if missing:
        raise ClusterConfigError(
            "A cluster with parameter servers must have a chief, workers and at least one ps.",
            received=f"no {' and no '.join(missing)}, but {', '.join(config.jobs)}",
            fix="Add the address of each task, the same in all processes: "
            '{"cluster": {"chief": ["a:2222"], "worker": ["b:2222"], "ps": ["c:2222"]}}.',
        )


def servers_of(config: ClusterConfig) -> list[Task]:
    """Return the workers and the parameter servers of a cluster."""
    return [Task(job, index) for job in SERVERS for index in range(len(config.jobs.get(job, ())))]


def _start(config: ClusterConfig, told: threading.Event, offer_more: Callable[[int], object] | None) -> None:
    import numpy as np
    import tensorflow as tf

    from tfdistr.tf_internals.remote_calls import offer

    # This process itself only reads data with TensorFlow: the GPUs are for the server.
    tf.config.set_visible_devices([], "GPU")

    def stop() -> object:
        told.set()
        return np.True_

    offer(STOP, stop)
    if config.task.type == "worker" and offer_more is not None:
        offer_more(config.task.index)
    devices = {"GPU": 0} if config.task.type == "ps" else {}
    try:
        tf.distribute.Server(
            dict(config.jobs),
            job_name=config.task.type,
            task_index=config.task.index,
            protocol="grpc",
            config=tf.compat.v1.ConfigProto(device_count=devices, inter_op_parallelism_threads=THREADS),
        )
    except (tf.errors.OpError, RuntimeError) as error:
        raise _start_error(str(error).strip(), config) from error


def _start_error(said: str, config: ClusterConfig) -> ClusterStartError:
    """Return the error for TensorFlow's error at the start of a server."""
    task, first = f"{config.task} ({config.address})", (said.splitlines() or [said])[0]
    if says_port_in_use(said):
        return no_port_error(task, first, PORT_IN_USE)
    return ClusterStartError(
        "Cannot start the server of the task.",
        received=f"{task}: {first}",
        fix="Check the addresses of the cluster, and what TensorFlow's message names on this machine.",
    )


class Patience:
    """The time limits of a server's wait for its chief, whose port answers while it runs."""

    def __init__(self, address: str, start_timeout: float, chief_timeout: float) -> None:
        self._address = address
        self._start_timeout, self._chief_timeout = start_timeout, chief_timeout
        self.came = False
        self._last_answer = time.monotonic()

    def look(self) -> None:
        """Check whether the chief is reachable."""
        now = time.monotonic()
        if answers(self._address):
            self.came, self._last_answer = True, now
            return
        if now - self._last_answer > (self._chief_timeout if self.came else self._start_timeout):
            raise ClusterStartError(
                "Lost connection to the chief."
                if self.came
                else f"The chief did not start within {self._start_timeout:g} s.",
                received=f"no answer at {self._address} for {now - self._last_answer:.0f} s",
                fix="Start the servers, and then the chief, with the same addresses in each process.",
            )


def answers(address: str) -> bool:
    """Return whether a process listens at an address "host:port"."""
    host, port = split_address(address)
    with contextlib.suppress(OSError), socket.create_connection((host, port), 1.0):
        return True
    return False


_ANY = re.compile(r"/job:(\w+)/replica:0/task:(\d+)")
_TITLES = {"ps": "parameter server ps", "worker": "worker"}


def lost_server(error: BaseException, config: ClusterConfig, job: str = "ps") -> WorkerFailedError | None:
    """Return the error that names the lost server of ``job``, if ``error`` is about one."""
    import tensorflow as tf

    if not isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError):
        return None
    # The unreachable server comes before other names in the text, such as the devices of a graph.
    named = [*UNREACHED.findall(str(error)), *_ANY.findall(str(error))]
    index = next((int(number) for name, number in named if name == job), None)
    if index is None or index >= len(config.jobs[job]):
        return None
    address = config.jobs[job][index]
    return WorkerFailedError(
        f"The {_TITLES[job]} {index} at {address} was lost, with the variables that it held.",
        worker=servers_of(config).index(Task(job, index)),
        host=split_address(address)[0],
        fix="See its log for the reason, and train again.",
    )
