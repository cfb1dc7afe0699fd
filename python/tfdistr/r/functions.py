"""Functions of R files for Python: their descriptions without R in this process, and their calls."""

from __future__ import annotations

import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

from tfdistr._version import __version__
from tfdistr.errors import ArgumentError
from tfdistr.r.values import seed_of_r
from tfdistr.utils.function_files import (
    FunctionOfFile,
    check_name,
    digest_of,
    names_of,
    not_a_function,
    path_of,
)
from tfdistr.utils.interrupts import defer_sigint
from tfdistr.utils.processes import run_program

#: R without the user's .Rprofile, which could use TensorFlow before a worker makes its strategy.
_FLAGS = ("--no-save", "--no-restore", "--no-init-file")
_MARK = "tfdistr: "
# Prints the version of the R package, if it is installed, and the function's description from parsing.
_DESCRIBE = f"""
version <- tryCatch(as.character(utils::packageVersion("tfdistr")), error = function(condition) "")
cat("{_MARK}version ", version, "\\n", sep = "")
if (version == "{__version__}") tfdistr:::describe_function()
"""
_TIMEOUT = 120.0  # seconds; R takes one


@dataclass(frozen=True)
class RFunction(FunctionOfFile):
    """A function of an R file; `r_function` makes it.

    A process in which R runs calls the function there. Another process starts R through rpy2.

    Args:
        role: The use of the function: "model" and the like, "data", or "layer" (it gets a layer).
    """

    CALL: ClassVar[str] = "tfdistr.r_function"

    role: str = field(default="model", repr=False)

    def __call__(self, *arguments: object) -> Any:
        """Call the function in the R of this process."""
        function = self.load()
        try:
            return function(*arguments)
        except Exception as error:
            note = r_of_this_process().note(error)
            if note:
                error.add_note(note)
            raise

    def load(self) -> Callable[..., Any]:
        """Return R's own function. R sources the file, if it has not done so before."""
        if self.digest not in _sourced:
            self.check_file()
        function = r_of_this_process().function(self.file, self.name, self.role, self.digest)
        if isinstance(function, str):
            raise not_a_function(self.name, f"{self.file} makes {function}")
        _sourced.add(self.digest)
        return function


def r_function(file: str | os.PathLike[str], name: str) -> RFunction:
    """Name a function of an R file.

    `distributed_fit` takes such a function as ``model``, ``x``, ``validation_data`` or ``callbacks``, and
    `model_parallel` as ``placement``. The workers of a job with such a function are R processes. Each of them
    sources the file into an environment of its own, which comes before the global environment, and takes the
    function by its name. It has the packages that the file attaches by ``library()``. The file must be at
    this path on all machines of the cluster, and stay as it is. Relative paths in it are relative to the
    working directory.

    This call parses the file, and does not run it. It needs R, and the R package tfdistr: R is
    ``$R_HOME/bin/Rscript``, or else the ``Rscript`` on PATH. This process gets no R. It needs R only to train
    without ``cluster``, or where a layer, loss or metric of ``fit.model`` is not one of Keras: R is then
    started in this process by rpy2 (``pip install 'tfdistr[r]'``).

    Args:
        file: The path of the file.
        name: The name of the function in the file.

    Returns:
        The function. It can be pickled, as its file and its name.

    Raises:
        ArgumentError: The file is not there, or R cannot parse it; it has no function of this name; R or the
            R package is not installed.

    Example:
        >>> import pathlib
        >>> code = '''
        ... library(reticulate)
        ... build <- function() {
        ...   keras <- import("keras")
        ...   model <- keras$Sequential(list(keras$layers$Flatten(), keras$layers$Dense(10L, "softmax")))
        ...   model$compile("adam", "sparse_categorical_crossentropy", metrics = list("accuracy"))
        ...   model
        ... }'''
        >>> _ = pathlib.Path("model.R").write_text(code)
        >>> fit = tfdistr.distributed_fit(
        ...     tfdistr.r_function("model.R", "build"), tfdistr.load_dataset("digits"),
        ...     cluster=tfdistr.local_cluster(workers=2), epochs=10, seed=1)
        >>> fit.metrics["accuracy"] > 0.5
        True
    """
    path = path_of(file, "an R file", RFunction.CALL)
    check_name(name, RFunction.CALL)
    digest = digest_of(path)
    said = _description(rscript(), str(path), name, digest)
    if said.get("error"):
        raise ArgumentError(
            "`file` must be an R file that R can parse.",
            received=said["error"],
            fix="Correct this line.",
        )
    if said["kind"] == "none":
        raise not_a_function(name, f"{path} {names_of(said['functions'].split())}")
    if said["kind"] == "value":
        raise not_a_function(name, f"{path} makes a value that is no function")
    return RFunction(str(path), name, digest, tuple(said["required"].split()))


def for_data(part: object) -> object:
    """Return an R function in its form for data; other parts of a job unchanged."""
    return replace(part, role="data") if isinstance(part, RFunction) else part


def for_layers(options: Mapping[str, object]) -> dict[str, object]:
    """Options of a strategy, with R functions as functions of layers."""
    return {
        name: replace(value, role="layer") if isinstance(value, RFunction) else value
        for name, value in options.items()
    }


def r_worker_command() -> tuple[str, ...]:
    """Return the program of an R worker; the run directory and the index of the worker follow."""
    return (rscript(), *_FLAGS, "-e", "tfdistr:::worker_main()")


def rscript() -> str:
    """Return the program that runs R scripts."""
    home = os.environ.get("R_HOME", "") or (_here[0].home if _here else "")
    program = os.path.join(home, "bin", "Rscript") if home else shutil.which("Rscript")
    if program is None or not os.access(program, os.X_OK):
        raise ArgumentError(
            "R functions need R.",
            received=f"no {program}, where R_HOME is {home}" if home else "no R_HOME, and no Rscript on PATH",
            fix="Install R, or set the environment variable R_HOME to the folder that `R RHOME` prints.",
        )
    return program


@functools.lru_cache(maxsize=64)
def _description(program: str, file: str, name: str, digest: str) -> dict[str, str]:
    """Return R's description of a function of a file, by keys; the hash of the file is for the cache."""
    ended = run_program([program, *_FLAGS, "-e", _DESCRIBE, file, name], _TIMEOUT)
    lines = ended.output.splitlines()
    said = dict(line[len(_MARK) :].partition(" ")[::2] for line in lines if line.startswith(_MARK))
    version = said.get("version")
    if version == "":
        raise ArgumentError(
            "R functions need the R package tfdistr.",
            received=f"none in the libraries of {program}",
            fix="Install it in this R, or name its library in the environment variable R_LIBS.",
        )
    if version is not None and version != __version__:
        raise ArgumentError(
            f"The R package tfdistr must have the version of the Python package, {__version__}.",
            received=f"{version}, in the libraries of {program}",
            fix="Install the same version in both.",
        )
    if "kind" not in said and "error" not in said:
        raise ArgumentError(
            "R functions need a working R installation.",
            received=f"{program}: {ended.failure or 'it says nothing'}",
            fix=f"See: {program} -e 'library(tfdistr)'",
        )
    return {key: unquote(value) for key, value in said.items()}


# --- R in this process


@dataclass(frozen=True)
class RSide:
    """The R of this process. The R package makes it, as soon as it uses this Python.

    Args:
        function: Called with a file, a name, a role and the hash of the file; returns the function for
            Python, or describes what else the file makes.
        seed: Called with a seed; sets the seed of R's random numbers.
        error: Returns the class of an R error, and R's calls; None for Python errors.
        embedded: Whether Python is the user's language.
    """

    function: Callable[[str, str, str, str], Callable[..., Any] | str]
    seed: Callable[[int], Any]
    error: Callable[[BaseException], tuple[str, str] | None]
    home: str
    libraries: Callable[[], str]
    embedded: bool = False

    def note(self, error: BaseException) -> str | None:
        """Return the note for a Python user beside an R error; None where others show it."""
        found = self.error(error) if self.embedded else None
        return found and f"R error of class {found[0]}\n{found[1]}"


_here: list[RSide] = []
_sourced: set[str] = set()  # the hashes of files


def use_r(function: Any, seed: Any, error: Any, home: str, libraries: Any) -> None:
    """Call R functions in the R that calls this; see `RSide`."""
    _here[:] = [RSide(function, defer_sigint(seed), error, home, defer_sigint(libraries))]


def r_of_this_process() -> RSide:
    """Return the R of this process. Start it if there is none."""
    if not _here:
        from tfdistr.r.session import start_r

        start_r()
        _here[:] = [replace(_here[0], embedded=True)]
    return _here[0]


def begin_with_seed(parts: Iterable[object], seed: int) -> None:
    """Source the files of a job's R functions, if any, and set the seed of R's random numbers after that."""
    functions = [part for part in parts if isinstance(part, RFunction)]
    if functions:
        side, seed = r_of_this_process(), seed_of_r(seed)
        side.seed(seed)  # a file may draw random numbers
        for function in functions:
            function.load()
        side.seed(seed)


def environment_of_r_worker(scratch: Path | None = None) -> dict[str, str]:
    """Return the variables with which an R worker finds Python, its packages, and a ``scratch`` folder."""
    env = {"RETICULATE_PYTHON": os.path.abspath(sys.executable)}
    if _here and not _here[0].embedded:
        env["R_LIBS"] = _here[0].libraries()
    return env if scratch is None else {**env, "TMPDIR": str(scratch)}
