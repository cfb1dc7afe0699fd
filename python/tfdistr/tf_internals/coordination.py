"""TensorFlow's runtime context: the coordination service and its barriers."""

from __future__ import annotations

import signal
import threading

from tensorflow.core.protobuf import error_codes_pb2 as _error_codes
from tensorflow.python.eager import context as _context

#: A field of the service's configuration from TensorFlow 2.19. Version 2.18 has no such barrier.
_REGISTER_WITH_BARRIER = "cluster_register_with_barrier"


def configure_coordination(
    jobs: dict[str, int], *, leader: str, register_timeout: float, heartbeat_timeout: float
) -> None:
    """Set up the coordination service so that it names a missing peer and does not wait forever.

    If the service is not configured, the strategy configures it, with a limit of one hour and without the
    barrier that names missing tasks. There is no public way to pass other values. (The jobs are added to the
    message itself: the module of its classes is ``tensorflow.tsl.protobuf`` in TensorFlow 2.18, and
    ``tensorflow.compiler.xla.tsl.protobuf`` from 2.19.)

    Args:
        jobs: Number of tasks of each training job, by the job's name.
        leader: The task that hosts the service, such as ``/job:worker/replica:0/task:0``.
        register_timeout: Seconds within which every task must have registered.
        heartbeat_timeout: Seconds without a heartbeat after which a task counts as lost.
    """
    context = _context.context()
    context.configure_coordination_service(
        service_type="standalone",
        service_leader=leader,
        cluster_register_timeout_in_ms=int(register_timeout * 1000),
        heartbeat_timeout_in_ms=int(heartbeat_timeout * 1000),
    )
    config = context.coordination_service
    for job, tasks in jobs.items():
        config.coordinated_job_list.add(name=job, num_tasks=tasks)
    if _REGISTER_WITH_BARRIER in config.DESCRIPTOR.fields_by_name:
        setattr(config, _REGISTER_WITH_BARRIER, True)


def take_back_sigterm() -> None:
    """Restore Python's action for SIGTERM, by default the end of the process.

    With the coordination service TensorFlow records the signal (PreemptionNotifier) and the process
    continues, so ``kill`` and schedulers would stop no worker. There is no option against it.
    """
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


def context_initialized() -> bool:
    """Return whether TensorFlow has started its devices. After that, no server can be configured."""
    return _context.context()._context_handle is not None


def wait_at_barrier(name: str, timeout: float) -> None:
    """Wait until every task of the cluster is at the barrier ``name`` (each name is used once)."""
    _context.context().wait_at_barrier(name, int(timeout * 1000))


def report_error(message: str) -> None:
    """Make every peer's next collective fail with ``message``, even if this process continues."""
    _context.context().report_error_to_cluster(_error_codes.ABORTED, message)


def abort_collectives(message: str) -> None:
    """Make the current and all later collectives of this process fail with ``message``.

    Unlike ``report_error`` it needs no other process. The host of the coordination service may be lost.
    """
    _context.context().abort_collective_ops(_error_codes.ABORTED, message)


def failed_tasks(jobs: dict[str, int]) -> list[str]:
    """Return the coordination service's reports of failed or lost tasks; empty if there are none."""
    states = _context.context().get_task_states(list(jobs.items()))
    return [str(getattr(state, "message", state)) for state in states if state is not None]


def set_key(key: str, value: str) -> None:
    """Store a value in the coordination service. Every task can read it."""
    _context.context().set_config_key_value(key, value)


def delete_key(key: str) -> None:
    """Remove a value from the coordination service, so that the key can be set again."""
    _context.context().delete_config_key_value(key)


def get_key(key: str, timeout: float) -> str:
    """Read a value from the coordination service. Wait for it up to ``timeout`` seconds."""
    return str(_context.context().get_config_key_value(key, int(timeout * 1000)))
