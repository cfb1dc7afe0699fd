"""The values that the code of a model reads: plain values of the user's modules, and attributes.

Classes of importable modules are sent by name. Other processes import these modules anew, so a module
variable or a class attribute that the session has changed would have its first value there.
"""

from __future__ import annotations

import functools
import importlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from tfdistr import tf_internals
from tfdistr.training.model_copies.plain_values import is_plain, same_plain

#: How the operations of Python begin that read a variable or an attribute, perhaps by a constant name.
_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER", "LOAD_CONST")


class ModuleValue(NamedTuple):
    """A value in a module.

    Attributes:
        module: The name of the module.
        holder: The qualified name of the class that has the value as an attribute; empty for a variable.
        name: The name of the value.
    """

    module: str
    holder: str
    name: str
    value: Any

    def restore(self) -> None:
        """Give the module of this process the value, if it has another one."""
        holder: Any = importlib.import_module(self.module)
        for name in filter(None, self.holder.split(".")):
            holder = getattr(holder, name)
        if not same_plain(self.value, vars(holder).get(self.name, self), {}):
            setattr(holder, self.name, self.value)


def module_values(parts: Iterable[object]) -> list[ModuleValue]:
    """Return the values that classes and functions read from the user's modules."""
    found: dict[tuple[str, str, str], Any] = {}
    for part in _reached(parts):
        if isinstance(part, FunctionType):
            found |= {(module, "", name): value for (module, name), value in _globals_of(part).items()}
        elif "<locals>" not in part.__qualname__:
            own = {name: value for name, value in vars(part).items() if not name.startswith("__")}
            found |= {(part.__module__, part.__qualname__, name): value for name, value in own.items()}
    return [
        ModuleValue(*key, value)
        for key, value in found.items()
        if _is_users(sys.modules.get(key[0])) and is_plain(value)
    ]


def attributes_read(parts: Iterable[object]) -> frozenset[str] | None:
    """Return the attributes that classes and functions may read; None for all, if the code computes names."""
    own: set[str] = set()
    declared: set[str] = set()
    for part in _reached(parts):
        if isinstance(part, type):
            declared |= {*vars(part), *tf_internals.names_of_libraries(part)}
        elif (part.__module__ or "").partition(".")[0] not in ("keras", "tensorflow"):
            own |= tf_internals.names_in(part.__code__, *_READS)
    return None if own & {"getattr", "vars", "__dict__"} else frozenset(own | declared)


def _reached(parts: Iterable[object]) -> Iterator[FunctionType | type]:
    """Yield classes and functions, and those that they use."""
    waiting, seen = list(parts), set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen or not isinstance(part, FunctionType | type):
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, type):
            waiting += part.__mro__
            waiting += [made for value in vars(part).values() for made in tf_internals.functions_of(value)]
        else:
            waiting += _globals_of(part).values()


def _globals_of(function: FunctionType) -> dict[tuple[str, str], object]:
    """Return what a function reads from modules, by module and name; nothing for installed code."""
    held, own = function.__globals__, str(function.__globals__.get("__name__"))
    if own != "__main__" and own in sys.modules and not _is_users(sys.modules[own]):
        return {}
    names = tf_internals.names_in(function.__code__, *_READS)
    read = {(own, name): held[name] for name in names if name in held}
    modules = [value for value in read.values() if isinstance(value, ModuleType) and _is_users(value)]
    of_modules = [(module, name) for module in modules for name in names if name in vars(module)]
    return {**read, **{(module.__name__, name): vars(module)[name] for module, name in of_modules}}


def _is_users(module: ModuleType | None) -> bool:
    """Return whether a module is neither installed nor Python's, and can be imported by its name."""
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__":
        return False
    return not str(file).startswith(_installed()) and getattr(module, "__spec__", None) is not None


@functools.cache
def _installed() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
