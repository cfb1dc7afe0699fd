"""R inside this Python process: objects go across as themselves, errors arrive as the other side's own.

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


class RError(Exception):
    """An R condition of class error: its message, classes and call stack stay with it."""

    def __init__(self, message: str, classes: list[str]) -> None:
        super().__init__(message)
        self.classes = classes


# R imports this very module, under its name.
sys.modules["bridge"] = sys.modules[__name__]
robjects.r("""
    library(reticulate)
    library(tfdistr)
    bridge <- import("bridge", convert = FALSE)
    is_py_object <- function(x) inherits(x, "python.builtin.object")
    take <- function(number) bridge$take(as.integer(number))
    # An error becomes a value here: it must not jump over the frames of Python.
    caught <- function(code) {
      tryCatch(
        list(value = eval(parse(text = code), globalenv())),
        error = function(e) {
          # What Python raised is a Python object; tfdistr's conditions have it as a field.
          python <- if (is_py_object(e)) e else e$exception
          list(
            error = conditionMessage(e), classes = class(e),
            python = if (is.null(python)) 0L else py_to_r(bridge$put(python))
          )
        }
      )
    }
""")


def r(code: str, **objects: object) -> object:
    """Evaluate R code with Python objects under the given names, and return what rpy2 makes of the value.

    Raises:
        Exception: The Python exception that R's error came from.
        RError: The error of R, if it began there.
    """
    for name, value in objects.items():
        robjects.r(f"{name} <- take({put(value)})")
    result = robjects.globalenv.find("caught")(code)
    fields = dict(zip(result.names, result, strict=True))
    if "error" not in fields:
        return fields.get("value")
    number = int(fields["python"][0])
    if number:
        raise take(number)  # type: ignore[misc]
    raise RError(str(fields["error"][0]), list(fields["classes"]))


def from_r(code: str) -> object:
    """Evaluate R code and return the Python object that it gives, the very same."""
    number = robjects.r(f"py_to_r(bridge$put(r_to_py({{ {code} }})))")[0]
    return take(number)
