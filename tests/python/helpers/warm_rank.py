"""A rank that mpiexec starts: has a fork server fork the program, and stands for it. Of the standard library.

Usage: warm_rank.py SERVER WORDS COMMAND   (WORDS of the command are the interpreter and its options)
"""

import os
import runpy
import signal
import sys
from pathlib import Path

CLIENT = Path(__file__).parents[3] / "python" / "tfdistr" / "fork_server" / "client.py"


def main(server: str, words: str, *command: str) -> None:
    client = runpy.run_path(str(CLIENT))
    program, files = command[int(words) :], {"PMI_FD": int(os.environ["PMI_FD"])}
    try:
        forked = client["Forked"](server, program, env=os.environ, output=1, files=files)
    except client["Refused"]:
        os.execv(command[0], command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: os.killpg(forked.pid, number))
    *_, status = forked.changes()
    os._exit(status if status >= 0 else 128 - status)


main(*sys.argv[1:])
