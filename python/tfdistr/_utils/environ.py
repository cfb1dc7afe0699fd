"""The environment variables of this process, where another language has changed them."""

from __future__ import annotations

import ctypes
import itertools
import os


def reload_environ() -> None:
    """Bring ``os.environ`` up to date with the process, of which Python reads the environment only once.

    R's ``Sys.setenv()`` changes the process's own. Python 3.14 has ``os.reload_environ()`` for this.

    Example:
        >>> ctypes.CDLL(None).setenv(b"CHANGED_OUTSIDE", b"yes", 1)
        0
        >>> reload_environ()
        >>> os.environ["CHANGED_OUTSIDE"]
        'yes'
    """
    entries = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    # All of them before the first change, for a change may move the list.
    values = itertools.takewhile(bool, (entries[place] for place in itertools.count()))
    present = dict(value.split(b"=", 1) for value in values if value and b"=" in value)
    for name in os.environb.keys() - present.keys():
        del os.environb[name]
    for name, value in present.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
