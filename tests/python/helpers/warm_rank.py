"""A rank that mpiexec starts: has a fork server fork the program, and stands for it. Of the standard library.

Usage: warm_rank.py SERVER PYTHON PROGRAM ARGUMENT...
"""

import os
import runpy
import signal
import sys
from pathlib import Path

CLIENT = Path(__file__).parents[3] / "python" / "tfdistr" / "launch" / "warm" / "client.py"


def main(server: str, *command: str) -> None:
    client = runpy.run_path(str(CLIENT))
    try:
        forked = client["Forked"](
            server, command[1:], env=os.environ, output=1, files={"PMI_FD": int(os.environ["PMI_FD"])}
        )
    except client["Refused"]:
        os.execv(command[0], command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.killpg(forked.pid, number))
    *_, status = forked.changes()
    os._exit(status if status >= 0 else 128 - status)


main(*sys.argv[1:])
