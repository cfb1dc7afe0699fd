"""The start of a fork server on another host. The session runs this script there over ssh.

    python remote.py

The first line of standard input is a JSON object with "command", "room" and "env". The script prints the path
of the server's socket on one line. Standard input stays open as long as the session lives. The script is run
by its path and uses the standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import tempfile


def main() -> None:
    """Become the server."""
    with open(0, "rb", buffering=0, closefd=False) as session:
        line = session.readline()  # and no byte more: the rest is for the server
    if not line.endswith(b"\n"):
        sys.exit("the session ended")
    start = json.loads(line)
    mode = os.stat("/tmp").st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        sys.exit("all users can replace what is in /tmp")
    folder = tempfile.mkdtemp(prefix="tfdistr-warm-", dir="/tmp")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(f"{folder}/socket")
    listener.listen(socket.SOMAXCONN)
    listener.set_inheritable(True)
    log = os.open(f"{folder}/server.log", os.O_WRONLY | os.O_CREAT, 0o600)
    print(f"{folder}/socket", flush=True)
    os.dup2(log, 1)
    os.dup2(log, 2)
    command = [*start["command"], folder, str(listener.fileno()), start["room"]]
    # Login variables of this host, such as HOME, stay if the session sends none of that name.
    os.execve(command[0], command, {**os.environ, **start["env"], "TMPDIR": folder})


if __name__ == "__main__":
    main()
