"""Functions that a job refers to: by their file, or as functions of another language."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, TypeGuard

from tfdistr.errors import ArgumentError
from tfdistr.utils.describe import describe

_NEEDED = "A function of a file needs its file, unchanged, wherever it is called."
_AGAIN = "Restore the file, or train again with the changed file."


@dataclass(frozen=True)
class FunctionOfFile:
    """A function that each process takes from its file.

    Args:
        required: The arguments of the function that have no default value, as far as they are known.
    """

    #: The user's name for such a function.
    CALL: ClassVar[str] = ""

    file: str
    name: str
    digest: str = field(repr=False)
    required: tuple[str, ...] = field(default=(), repr=False)

    def check_file(self) -> None:
        """Check that the file has not changed."""
        try:
            found = digest_of(self.file)
        except OSError as error:
            raise ArgumentError(_NEEDED, received=f"{self.file}: {error.strerror}", fix=_AGAIN) from error
        if found != self.digest:
            received = f"{self.file}, which has changed since {self.name!r} was named"
            raise ArgumentError(_NEEDED, received=received, fix=_AGAIN)

    def check_no_arguments(self, argument: str) -> None:
        """Check that the function can be called without arguments."""
        if self.required:
            raise ArgumentError(
                f"`{argument}` must be a function that can be called without arguments.",
                received=f"{self.name!r} of {self.file}, which needs {', '.join(map(repr, self.required))}",
                fix="Give these arguments default values in the file.",
            )


@dataclass(frozen=True)
class PythonFunction(FunctionOfFile):
    """A function of a Python file."""

    CALL: ClassVar[str] = "python_function"

    def __call__(self, *arguments: object) -> Any:
        """Call the function. The first call in a process imports the file."""
        function = getattr(_module(self), self.name, None)
        if not callable(function):
            made = "nothing of this name" if function is None else describe(function)
            raise not_a_function(self.name, f"{self.file} makes {made}")
        return function(*arguments)


def python_function(file: str | os.PathLike[str], name: str) -> PythonFunction:
    """Name a function of a Python file. The file is parsed, not run.

    Raises:
        ArgumentError: The file is not there or has a syntax error, or it has no function of this name.
    """
    path = path_of(file, "a Python file", PythonFunction.CALL)
    check_name(name, PythonFunction.CALL)
    content = path.read_bytes()
    try:
        parsed = ast.parse(content, str(path))
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        line = getattr(error, "lineno", None)
        raise ArgumentError(
            "`file` must be a Python file without syntax errors.",
            received=f"{path}{f', line {line}' if line else ''}: {getattr(error, 'msg', error)}",
            fix="Correct this line.",
        ) from error
    made = dict(_assigned_names(parsed))
    if name not in made and "*" not in made and not _makes_unnamed(parsed):
        functions = [other for other, node in made.items() if isinstance(node, _FUNCTIONS)]
        raise not_a_function(name, f"{path} {names_of(functions)}")
    node = made.get(name)
    if isinstance(node, ast.Constant):
        raise not_a_function(name, f"{path}, line {node.lineno}, makes {describe(node.value)}")
    return PythonFunction(str(path), name, _digest(content), _required(node))


def digest_of(file: str | os.PathLike[str]) -> str:
    """Return a hash of a file; OSError if it cannot be read."""
    return _digest(Path(file).read_bytes())


def path_of(file: object, kind: str, call: str) -> Path:
    """Return the absolute path of a file that the user has named."""
    suffix = ".R" if " R " in f"{kind} " else ".py"
    fix = f'Pass the path of the file: {call}("model{suffix}", "build").'
    if not isinstance(file, str | os.PathLike) or not os.fspath(file):
        raise ArgumentError(f"`file` must be the path of {kind}.", received=describe(file), fix=fix)
    path = Path(os.path.abspath(Path(file).expanduser()))
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no such file"
        raise ArgumentError(f"`file` must be the path of {kind}.", received=f"{path}: {what}", fix=fix)
    return path


def check_name(name: object, call: str) -> None:
    """Check the name of a function; ArgumentError if it is none."""
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            "`name` must be the name of a function of the file.",
            received=describe(name),
            fix=f"Pass it as text; see {call}().",
        )


def not_a_function(name: str, found: str) -> ArgumentError:
    """Return the error for a name that is no function of the file."""
    return ArgumentError(
        "`name` must be the name of a function that the file makes.",
        received=f"{name!r}, where {found}",
        fix="Pass the name of a function, or add this one to the file.",
    )


def names_of(functions: list[str]) -> str:
    """Return the functions that a file makes, in words."""
    return f"makes the functions {', '.join(map(repr, functions))}" if functions else "makes no function"


_UNNAMED = ("exec", "globals", "setattr")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _module(function: PythonFunction) -> ModuleType:
    """Return the module of a file: imported once in each process, under a name that no other module has."""
    place = hashlib.sha256(f"{function.file} {function.digest}".encode()).hexdigest()[:8]
    name = f"{Path(function.file).stem}_{place}"
    if name in sys.modules:
        return sys.modules[name]
    function.check_file()
    spec = importlib.util.spec_from_file_location(name, function.file)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    folder = os.path.dirname(function.file)
    if folder not in sys.path:
        sys.path.append(folder)  # for the modules beside it; the last entry hides nothing
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    import cloudpickle

    cloudpickle.register_pickle_by_value(module)  # no other process can import it by this name
    return module


def _assigned_names(parsed: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Yield the names that the file assigns outside of functions, with their code; "*" for a star import."""
    for node in ast.iter_child_nodes(parsed):
        if isinstance(node, _FUNCTIONS):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.partition(".")[0], node) for alias in node.names)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                plain = isinstance(target, ast.Name)
                names = (part.id for part in ast.walk(target) if _is_assigned(part))
                yield from ((name, node.value if plain else node) for name in names)
        elif not isinstance(node, ast.Lambda):
            yield from _assigned_names(node)


def _is_assigned(part: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)


def _makes_unnamed(parsed: ast.AST) -> bool:
    """Return whether the file may make variables that it does not name."""
    calls = (node.func for node in ast.walk(parsed) if isinstance(node, ast.Call))
    return any(isinstance(called, ast.Name) and called.id in _UNNAMED for called in calls)


def _required(node: ast.AST | None) -> tuple[str, ...]:
    """Return the arguments of a function that have no default value."""
    if not isinstance(node, ast.FunctionDef | ast.Lambda):
        return ()
    if isinstance(node, ast.FunctionDef) and node.decorator_list:
        return ()  # a decorator may change the arguments
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    first = positional[: len(positional) - len(given.defaults)]
    keyword = [
        name for name, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default is None
    ]
    return tuple(argument.arg for argument in [*first, *keyword])


@dataclass(frozen=True)
class FunctionByName:
    """A placeholder in a job. A worker of the other language replaces it by the function of this name.

    Args:
        generates: Whether the function is known to return a batch at each call, and no dataset.
    """

    name: str
    generates: bool = False
