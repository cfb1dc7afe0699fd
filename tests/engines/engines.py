"""The engines that start workers, each as a caller's program sees it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
#: Hosts of tests are on one machine, which MPI must not see.
BY_NETWORK = {"UCX_TLS": "tcp,self"}


@dataclass(frozen=True)
class Engine:
    """A way to start workers.

    Args:
        clusters: The cluster as an expression of each language; None if the engine starts a script.
        before: The words before the program of the caller, or before the script.
        env: Environment variables for the caller.
        hosts: The host of each worker, where the engine says it.
    """

    clusters: Mapping[str, str] | None
    before: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    hosts: Sequence[str] | None = None

    def command(self, language: str, what: str, folder: Path) -> list[str]:
        """The command of the job.

        Args:
            language: "python" or "r".
            what: What the job does; see job.py.
            folder: The folder of the job.
        """
        script = str(HERE / {"python": "job.py", "r": "job.R"}[language])
        if self.clusters is None:
            again = ["--max-restarts", "1"] if what == "restart" else []
            options = ["--run-dir", str(folder / "run"), *again]
            none = {"python": "None", "r": "NULL"}[language]
            return [*self.before, *options, script, none, what, str(folder)]
        program = {"python": sys.executable, "r": shutil.which("Rscript") or "Rscript"}[language]
        return [*self.before, program, script, self.clusters[language], what, str(folder)]

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the caller."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PMI"))}
        return {**kept, "TF_CPP_MIN_LOG_LEVEL": "2", **self.env}


def both(call: str) -> dict[str, str]:
    """The expression of a cluster in both languages, where it is the same call."""
    return {"python": f"tfdistr.{call}", "r": call}


#: The command that starts a script as workers.
RUN = (sys.executable, "-m", "tfdistr", "run")
