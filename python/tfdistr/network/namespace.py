"""A network namespace for the processes of a job, with a private loopback interface.

    python namespace.py make                    (prints "made", and keeps the namespace until its input ends)
    python namespace.py enter USER_NAMESPACE NETWORK_NAMESPACE PROGRAM ARGUMENT...

USER_NAMESPACE and NETWORK_NAMESPACE are the numbers of open files, or -1 for the namespace of this process.
Without root rights a network namespace needs a user namespace around it, in which the user stays the same.

The script is run by its path and uses the standard library only: only a process with one thread may change
its user namespace.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys

# From <sched.h>, <linux/sockios.h> and <net/if.h>.
_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 0x1


def make() -> None:
    """Make a network namespace, move this process into it, and bring its loopback interface up."""
    user, group = os.geteuid(), os.getegid()
    try:
        _call("unshare", _CLONE_NEWNET)
    except PermissionError:
        _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNET)
        for name, line in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"),
                           ("gid_map", f"{group} {group} 1")):  # fmt: skip
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))


def enter(user: int, network: int) -> None:
    """Move this process into namespaces."""
    for file, kind in ((user, _CLONE_NEWUSER), (network, _CLONE_NEWNET)):
        if file >= 0:
            _call("setns", file, kind)
            os.close(file)


def _call(function: str, *arguments: int) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    try:
        if sys.argv[1] == "make":
            make()
            print("made", flush=True)
            sys.stdin.read()
        else:
            enter(int(sys.argv[2]), int(sys.argv[3]))
            os.execvp(sys.argv[4], sys.argv[4:])
    except OSError as error:
        sys.exit(f"{' '.join(sys.argv[4:5] or sys.argv[1:2])}: {error}")
