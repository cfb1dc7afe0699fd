"""A worker that becomes a rank of MPI, without TensorFlow: python mpi_joins.py BARRIER RUN_DIR INDEX.

The start stays at this barrier of MPI, from 1, for good. With 0, the ranks start, and wait to be ended.
"""

import json
import os
import sys
import time
from pathlib import Path

from tfdistr.collectives.mpi.agreement import Talks
from tfdistr.collectives.mpi.joining import Joining, PmiServer
from tfdistr.collectives.mpi.world import MpiLibrary
from tfdistr.rendezvous.meeting import meet
from tfdistr.supervision.events import EventWriter
from tfdistr.utils.processes import die_with_parent
from tfdistr.utils.shared_names import START, folder_of_start


class Held(PmiServer):
    """A manager that does not answer when all ranks are at a barrier."""

    left = 0

    def answer(self, rank: int, line: str) -> dict[int, str]:
        answers = super().answer(rank, line)
        if "cmd=barrier_out" in answers.values():
            Held.left -= 1
            if Held.left == 0:
                hold()
        return answers


def hold() -> None:
    # As UCX, if it is killed between the two calls that make a file and remove its name.
    folder = folder_of_start(start)
    (folder / "ucx_shm_posix_1").touch()
    events.write("held", pid=os.getpid(), folder=str(folder))
    time.sleep(600)


if __name__ == "__main__":
    die_with_parent()
    Held.left, run_dir, index = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    start = os.environ[START]
    events = EventWriter(run_dir, index)
    events.write("started", pid=os.getpid(), host="")
    addresses = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
    tasks, own = {f"worker {i}": address for i, address in enumerate(addresses)}, f"worker {index}"
    talks = Talks(meet(tasks, own, {}, 60), tasks, own, 60)
    library = MpiLibrary()
    joining = Joining(talks, talks.agree(library.version, ""), library, 60)
    joining._relay._server.__class__ = Held
    joining.start()
    hold()
