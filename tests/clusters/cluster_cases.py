"""The clusters and commands that start workers, each as a caller's program sees it."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


def run_options(what: str, folder: Path) -> list[str]:
    """The options of `tfdistr run`."""
    return ["--run-dir", str(folder / "run"), *_restarts(what)]


def pods_options(what: str, folder: Path) -> list[str]:
    """The options of job_of_pods.py."""
    return [str(folder), "-n", "2", *_restarts(what)]


def _restarts(what: str) -> list[str]:
    return ["--max-restarts", "1"] if what == "restart" else []


@dataclass(frozen=True)
class ClusterCase:
    """A way to start workers.

    Args:
        clusters: The cluster as an expression of each language; None if a command starts a script.
        before: The words before the program of the caller, or before the script.
        env: Environment variables for the caller.
        hosts: The host of each worker, where it is known.
        store: Where a store listens, and the name by which the workers find it.
        options: Options of the command before a script, for what the job does and its folder.
        killed: A pattern of what is said of worker 1 after SIGKILL.
    """

    clusters: Mapping[str, str] | None
    before: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    hosts: Sequence[str] | None = None
    store: tuple[str, str] = ("127.0.0.1", "127.0.0.1")
    options: Callable[[str, Path], list[str]] = run_options
    killed: str = r"Worker 1 of 2 on \S+ was killed by SIGKILL"

    def command(self, language: str, what: str, folder: Path) -> list[str]:
        """The command of the job.

        Args:
            language: "python" or "r".
            what: What the job does; see job.py.
            folder: The folder of the job.
        """
        script = str(HERE / {"python": "job.py", "r": "job.R"}[language])
        if self.clusters is None:
            none = {"python": "None", "r": "NULL"}[language]
            return [*self.before, *self.options(what, folder), script, none, what, str(folder)]
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
