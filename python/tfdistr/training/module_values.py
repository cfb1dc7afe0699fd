"""Plain values of the user's modules that the classes of a model read.

Classes of importable modules are sent by name. Other processes import these modules anew, so a module
variable or a class attribute that the session has changed would have its first value there.
"""

from __future__ import annotations

import functools
import importlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from tfdistr.training.plain_values import is_plain, same_plain


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


def module_values(parts: Iterable[Any]) -> list[ModuleValue]:
    """Return the values that classes and functions read from the user's modules."""
    found: dict[tuple[str, str, str], ModuleValue] = {}
    waiting, seen = list(parts), set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen or not isinstance(part, FunctionType | type):
            continue
        seen.add(id(part))
        if isinstance(part, type):
            waiting += [base for base in part.__mro__ if base is not part]
            waiting += [function for value in vars(part).values() for function in _functions_of(value)]
            values = list(_class_attributes(part))
        else:
            values, used = _globals_of(part)
            waiting += used
        found |= {value[:3]: value for value in values}
    return list(found.values())


def _functions_of(value: Any) -> list[Any]:
    parts = [value.fget, value.fset] if isinstance(value, property) else [getattr(value, "__func__", value)]
    return [part for part in parts if isinstance(part, FunctionType)]


def _class_attributes(kind: type) -> Iterator[ModuleValue]:
    module = sys.modules.get(kind.__module__)
    if not _is_users(module) or "<locals>" in kind.__qualname__:
        return
    for name, value in vars(kind).items():
        if not name.startswith("__") and is_plain(value):
            yield ModuleValue(kind.__module__, kind.__qualname__, name, value)


def _globals_of(function: FunctionType) -> tuple[list[ModuleValue], list[Any]]:
    """Return the plain values that a function reads from modules, and the functions and classes it uses."""
    module = sys.modules.get(function.__module__ or "")
    if module is not None and module.__name__ != "__main__" and not _is_users(module):
        return [], []
    names = _names_in(function.__code__)
    values, used = [], []
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType) and _is_users(value):
            held = [(key, vars(value)[key]) for key in names if key in vars(value)]
            values += [ModuleValue(value.__name__, "", key, found) for key, found in held if is_plain(found)]
            used += [found for _, found in held]
        elif isinstance(value, FunctionType | type):
            used.append(value)
        elif name in function.__globals__ and is_plain(value) and _is_users(module):
            assert module is not None
            values.append(ModuleValue(module.__name__, "", name, value))
    return values, used


def _names_in(code: CodeType) -> frozenset[str]:
    inner = [_names_in(part) for part in code.co_consts if isinstance(part, CodeType)]
    return frozenset(code.co_names).union(*inner)


def _is_users(module: ModuleType | None) -> bool:
    """Return whether a module is neither installed nor Python's, and can be imported by its name."""
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__":
        return False
    return not str(file).startswith(_installed()) and getattr(module, "__spec__", None) is not None


@functools.cache
def _installed() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
