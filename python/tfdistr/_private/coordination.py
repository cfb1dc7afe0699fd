"""TensorFlow's runtime context: the coordination service and its barriers."""

from __future__ import annotations

from tensorflow.core.protobuf import error_codes_pb2 as _error_codes
from tensorflow.python.eager import context as _context


def configure_coordination(
    jobs: dict[str, int], *, leader: str, register_timeout: float, heartbeat_timeout: float
) -> None:
    """Set up the coordination service so that a missing peer is named, not waited for for ever.

    The strategy configures the service only when nobody did, with a limit of one hour and without
    the barrier that names missing tasks; there is no public way to pass other values.

    Args:
        jobs: Number of tasks of each training job.
        leader: The task that hosts the service, such as ``/job:worker/replica:0/task:0``.
        register_timeout: Seconds within which every task must have registered.
        heartbeat_timeout: Seconds without a heartbeat after which a task counts as gone.
    """
    from tensorflow.compiler.xla.tsl.protobuf import coordination_config_pb2

    context = _context.context()
    context.configure_coordination_service(
        service_type="standalone",
        service_leader=leader,
        cluster_register_timeout_in_ms=int(register_timeout * 1000),
        heartbeat_timeout_in_ms=int(heartbeat_timeout * 1000),
        coordinated_jobs=[
            coordination_config_pb2.CoordinatedJob(name=job, num_tasks=tasks) for job, tasks in jobs.items()
        ],
    )
    context.coordination_service.cluster_register_with_barrier = True


def context_initialized() -> bool:
    """Whether TensorFlow has started its devices, after which no server can be configured."""
    return _context.context()._context_handle is not None


def wait_at_barrier(name: str, timeout: float) -> None:
    """Wait until every task of the cluster is at the barrier ``name`` (each name is used once)."""
    _context.context().wait_at_barrier(name, int(timeout * 1000))


def report_error(message: str) -> None:
    """Make every peer's next collective fail with ``message``, also while this process lives on."""
    _context.context().report_error_to_cluster(_error_codes.ABORTED, message)


def abort_collectives(message: str) -> None:
    """Make this process's own collectives fail with ``message``, those under way and all that come.

    Unlike a report it needs no other process, such as one that hosts the coordination service and is gone.
    """
    _context.context().abort_collective_ops(_error_codes.ABORTED, message)


def failed_tasks(jobs: dict[str, int]) -> list[str]:
    """What the coordination service says of the tasks that failed or vanished; empty if all are well."""
    states = _context.context().get_task_states(list(jobs.items()))
    return [str(getattr(state, "message", state)) for state in states if state is not None]


def set_key(key: str, value: str) -> None:
    """Store a value in the coordination service, for every task to read."""
    _context.context().set_config_key_value(key, value)


def delete_key(key: str) -> None:
    """Remove a value from the coordination service, so that another can take its place."""
    _context.context().delete_config_key_value(key)


def get_key(key: str, timeout: float) -> str:
    """Read a value from the coordination service, waiting up to ``timeout`` seconds for it."""
    return str(_context.context().get_config_key_value(key, int(timeout * 1000)))
