"""The environment variables of workers, on any cluster."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from tfdistr.errors import ArgumentError
from tfdistr.schemas import show
from tfdistr.utils.describe import ValueOfR
from tfdistr.utils.gpus import GROWTH
from tfdistr.utils.processes import PARENT
from tfdistr.utils.tuning import tuned_environment, untuned_environment

_OWN = ("TF_CONFIG", PARENT)
#: Only for variables that the user has not set: the start messages of TensorFlow and gRPC hide errors.
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "2", "GRPC_VERBOSITY": "ERROR"}
# Variables that a login or another job's launcher sets: a host has its own, or none.
_NOT_FOR_HOSTS = re.compile(
    r"HOME|USER|LOGNAME|SHELL|MAIL|HOST|HOSTNAME|PWD|OLDPWD|SHLVL|_|TERM|TMPDIR|TMP|TEMP|DISPLAY|XAUTHORITY"
    r"|WAYLAND_DISPLAY|(XDG|DBUS|SSH|GPG|SYSTEMD|PMI|PMIX|OMPI|PRTE|HYDI)_.*|MPI_LOCAL.*"
    r"|TF_CONFIG|TFDISTR_PARENT_PID|R_SESSION_TMPDIR"
)


def check_env(env: object) -> dict[str, str]:
    """Check that ``env`` maps names of environment variables to text. No error shows a value."""
    if env is not None and not isinstance(env, Mapping):
        raise ArgumentError(
            "`env` must map the names of environment variables to their values.",
            received=_kind(env),
            fix='Pass for example env={"OMP_NUM_THREADS": "1"}.',
        )
    for name, value in (env or {}).items():
        if not isinstance(name, str) or not name or set(name) & {"=", "\0"}:
            raise ArgumentError(
                "Each name in `env` must be the name of an environment variable.",
                received=show(name.partition("=")[0] + "=..." if "=" in str(name) else name),
                fix='Write it like "OMP_NUM_THREADS", without a "=".',
            )
        if name in _OWN:
            raise ArgumentError(
                f"`env` must not set {name}: the launcher gives each worker its own.",
                received=f"env with {name}",
                fix=f"Leave {name} out. Workers at addresses of your own are started by hand.",
            )
        if not isinstance(value, str) or "\0" in value:
            raise ArgumentError(
                f"`env` must give {name} a value that is text.",
                received="text with a null character" if isinstance(value, str) else _kind(value),
                fix='Put it in quotes, like "1".',
            )
    return dict(env or {})


def of_this_process() -> dict[str, str]:
    """Return the variables that workers on other hosts get from this process."""
    return {name: value for name, value in os.environ.items() if not _NOT_FOR_HOSTS.fullmatch(name)}


def worker_defaults(env: Mapping[str, str] | None, tuning: bool) -> dict[str, str]:
    """Return the environment variables of every worker; those of the user, ``env``, take precedence."""
    given = dict(env or {})
    settings = {**unset(_QUIET), **unset(GROWTH), "PYTHONUNBUFFERED": "1"}
    settings |= tuned_environment({**os.environ, **given}) if tuning else untuned_environment()
    return {**settings, **given}


def unset(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are not set in this process."""
    return {name: value for name, value in variables.items() if name not in os.environ}


def _kind(value: object) -> str:
    if isinstance(value, ValueOfR):
        return str(value)
    return f"an object of class {type(value).__name__}"  # the value itself may be a secret
