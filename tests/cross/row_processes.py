"""Rows in sessions of their own: of Python (programs/row.py) and of R (programs/row.R)."""

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clusters import MPIEXEC, NO_GPU, run_commands
from warm import ENVIRONMENT, rank

import tfdistr
from tfdistr.network.ports import free_ports
from tfdistr.r.functions import rscript

HERE = Path(__file__).parent
TIMEOUT = 200.0


class Session:
    """A session to come, which evaluates a row.

    Args:
        language: "python" or "r".
        row: The row.
        folder: A folder of its own.
    """

    def __init__(self, language: str, row: Mapping[str, Any], folder: Path) -> None:
        folder.mkdir()
        (folder / "row.json").write_text(json.dumps(row))
        self._output = folder / "observed.json"
        program = [rscript(), "--no-init-file"] if language == "r" else [sys.executable]
        script = str(HERE / "programs" / ("row.R" if language == "r" else "row.py"))
        self.language = language
        self.command = [*program, script, str(folder / "row.json"), str(self._output)]
        # What is killed leaves its temporary files behind.
        (folder / "tmp").mkdir()
        self.environment = {
            **ENVIRONMENT, **os.environ, **NO_GPU, "TF_CONFIG": "", "CROSS": str(HERE),
            "RETICULATE_PYTHON": str(Path(sys.executable).absolute()), "TMPDIR": str(folder / "tmp"),
        }  # fmt: skip

    def observed(self) -> Any:
        """What the row gave; None if the session ended before."""
        return json.loads(self._output.read_text()) if self._output.exists() else None


def alone(session: Session) -> Any:
    """What a session without peers gives; None if it was killed."""
    (ended,) = run_commands([session.command], [session.environment], TIMEOUT)
    observed = session.observed()
    assert observed or ended.status < 0, ended.output[-4000:]
    return observed


def together(carrier: str, sessions: Sequence[Session]) -> list[Any]:
    """What sessions give that are the workers of one cluster, by TF_CONFIG ("ring") or mpiexec ("mpi")."""
    ended = run_commands(*(_ring(sessions) if carrier == "ring" else _mpi(sessions)), TIMEOUT)
    observed = [session.observed() for session in sessions]
    assert all(observed), "\n\n".join(one.output[-4000:] for one in ended)
    return observed


def _ring(sessions: Sequence[Session]) -> tuple[list[list[str]], list[dict[str, str]]]:
    plan = tfdistr.tf_config(worker=[f"127.0.0.1:{port}" for port in free_ports(len(sessions))])
    tasks = zip(sessions, plan.environments(), strict=True)
    return [one.command for one in sessions], [one.environment | task for one, task in tasks]


def _mpi(sessions: Sequence[Session]) -> tuple[list[list[str]], list[dict[str, str]]]:
    ranks = [word for one in sessions for word in (":", "-n", "1", *rank(one.command, one.environment))]
    return [[str(MPIEXEC), *ranks[1:]]], [sessions[0].environment | {"TMPDIR": tempfile.gettempdir()}]
