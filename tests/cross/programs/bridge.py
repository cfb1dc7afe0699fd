"""R inside this Python process: objects go across as themselves.

R's reticulate uses the Python that runs already, so both sides see the same objects. They are handed over by
number: ``take(put(obj)) is obj``, whichever side calls.
"""

import sys

from tfdistr.r.session import start_r

robjects = start_r()

_objects: dict[int, object] = {}


def put(value: object) -> int:
    """Keep ``value`` for the other side and return its number."""
    number = len(_objects) + 1
    _objects[number] = value
    return number


def take(number: int) -> object:
    """The object with that number, which is forgotten here."""
    return _objects.pop(int(number))


# R imports this very module, under its name.
sys.modules["bridge"] = sys.modules[__name__]
robjects.r("""
    library(reticulate)
    library(tfdistr)
    bridge <- import("bridge", convert = FALSE)
    take <- function(number) bridge$take(as.integer(number))
""")


def r(code: str, **objects: object) -> None:
    """Evaluate R code with Python objects under the given names."""
    for name, value in objects.items():
        robjects.r(f"{name} <- take({put(value)})")
    robjects.r(code)


def from_r(code: str) -> object:
    """Evaluate R code and return the Python object that it gives, the very same."""
    number = robjects.r(f"py_to_r(bridge$put(r_to_py({{ {code} }})))")[0]
    return take(number)
