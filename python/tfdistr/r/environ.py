"""The environment variables of this process, after another language has changed them."""

from __future__ import annotations

import ctypes
import itertools
import os


def reload_environ() -> None:
    """Bring ``os.environ`` up to date with the environment of the process. Python reads it only once.

    R's ``Sys.setenv()`` changes the environment of the process. Python 3.14 has ``os.reload_environ()``.

    Example:
        >>> ctypes.CDLL(None).setenv(b"CHANGED_OUTSIDE", b"yes", 1)
        0
        >>> reload_environ()
        >>> os.environ["CHANGED_OUTSIDE"]
        'yes'
    """
    entries = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
    # Read all entries before the first change, because a change may move the list.
    values = itertools.takewhile(bool, (entries[place] for place in itertools.count()))
    present = dict(value.split(b"=", 1) for value in values if value and b"=" in value)
    for name in os.environb.keys() - present.keys():
        del os.environb[name]
    for name, value in present.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
