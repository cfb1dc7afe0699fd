"""The files of a result, which any other process can read."""

from __future__ import annotations

import io
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

from tfdistr._version import __version__
from tfdistr.errors import ArgumentError, TfdistrError
from tfdistr.jobs.result import FitResult
from tfdistr.training.model_state import LazyModel, ModelState
from tfdistr.utils.disk import writing

if TYPE_CHECKING:
    import keras

#: The format of a saved result. Another one is refused.
_FORMAT = 1


def save(result: FitResult, path: str | os.PathLike[str]) -> None:
    """Write a result; see ``FitResult.save()``."""
    content, file = to_bytes(result), Path(path)
    part = file.with_name(f".{file.name}.{os.getpid()}")
    fix = "Make room, or name a file in another folder."
    with writing(path, "The result", needed=lambda: len(content), fix=fix, kind=TfdistrError):
        try:
            part.write_bytes(content)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)


def load_result(path: str | os.PathLike[str]) -> FitResult:
    """Read a result; see ``FitResult.load()``."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ArgumentError(
            "`path` must name a file that FitResult.save() has written.",
            received=f"{os.fspath(path)} ({error.strerror})",
            fix="Correct the path.",
        ) from error
    return from_bytes(content)


def to_bytes(result: FitResult, *, with_recipe: bool = True) -> bytes:
    """Return the result as bytes, for ``from_bytes`` in any other process."""
    import cloudpickle

    state = io.BytesIO()
    result._trained.state().write(state)
    parts = {name: getattr(result, name) for name in ("history", "params", "workers", "run_dir")}
    recipe = result._trained.recipe if with_recipe else None
    try:
        content = cloudpickle.dumps(
            {
                **parts, "form": result._form, "state": state.getvalue(), "recipe": recipe,
                "settings": result._trained.settings,
            }
        )  # fmt: skip
    except Exception as error:  # the pickling code of an object can raise anything
        raise ArgumentError(
            "A result can be saved if its model function can be sent to other processes.",
            received=f"{type(error).__name__}: {error}",
            fix='Save the model itself: fit.save_model("model.keras").',
        ) from error
    header = json.dumps({"tfdistr": __version__, "format": _FORMAT}).encode()
    return header + b"\n" + bytes(content)


def from_bytes(content: bytes, build: Callable[[], keras.Model] | None = None) -> FitResult:
    """Read the result that ``to_bytes`` returned."""
    header, _, rest = bytes(content).partition(b"\n")
    try:
        written = json.loads(header)
        if written["format"] == _FORMAT:
            saved = pickle.loads(rest)
            state = ModelState.read(io.BytesIO(saved.pop("state")))
    except (ValueError, KeyError, TypeError, EOFError, pickle.UnpicklingError, BadZipFile) as error:
        raise ArgumentError(
            "A saved result must be whole.",
            received=f"{len(content)} bytes that are none, or not all of one ({error})",
            fix="Save it again.",
        ) from error
    if written["format"] != _FORMAT:
        raise ArgumentError(
            f"tfdistr {__version__} reads results of the format {_FORMAT}.",
            received=f"the format {written['format']}, written by tfdistr {written['tfdistr']}",
            fix='Read it with that version, and save its model: fit.save_model("model.keras").',
        )
    trained = LazyModel(saved.pop("recipe"), lambda: state, build, settings=saved.pop("settings"))
    return FitResult(**saved, trained=trained)
