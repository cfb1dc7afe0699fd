"""A worker is killed, and a second call resumes the job: the result has the bits of an undisturbed run.

Usage: killed.py mpi|ring
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "python" / "helpers"))
from recovered import Attempt, Job, Strikes

import tfdistr
from tfdistr.errors import WorkerFailedError


def main() -> None:
    communication = sys.argv[1]
    strategy = tfdistr.multi_worker_mirrored(communication=communication)
    job = Job({"cluster": tfdistr.local_cluster(2), "strategy": strategy, "checkpoint_every": 3})
    killed = Attempt(
        lambda run: [Strikes(run, (1, 4, 1, signal.SIGKILL))], WorkerFailedError, "was killed by SIGKILL"
    )
    with tempfile.TemporaryDirectory(prefix="tfdistr-versions-") as folder:
        whole = job.trained(Path(folder, "whole"))
        resumed = job.check(Path(folder, "killed"), whole, [killed, Attempt()])
        assert resumed.params["communication"] == communication, resumed.params
        tfdistr.stop_warm_workers()
    print("the same bits")


if __name__ == "__main__":
    main()
