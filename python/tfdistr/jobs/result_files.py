"""The files of a run directory with the chief's results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tfdistr.data.form import Form
from tfdistr.errors import CheckpointError
from tfdistr.jobs.documents import write_document
from tfdistr.schemas import read, schema_id
from tfdistr.training.model_state import ModelState
from tfdistr.utils.disk import writing
from tfdistr.utils.trusted_files import open_own, replacing
from tfdistr.utils.tuning import describe_tuning

if TYPE_CHECKING:
    import keras

    from tfdistr.training.trained_model import Training

_STATE = "model.npz"
_SUMMARY = "training.json"
_DESCRIBED = "description.json"

#: The files of a run with the chief's results. The description is not for other runs: they have a model.
RESULT_FILES = (_STATE, _SUMMARY)


def save_training(training: Training, run_dir: Path) -> None:
    """Write weights, optimizer state and history of a trained model into ``run_dir`` (on the chief)."""
    path, digest = run_dir / _STATE, None
    if training.model is not None:
        state = ModelState.of(training.model, training.inputs)
        with writing(path, "The trained model", needed=lambda: state.nbytes), replacing(path) as file:
            state.write(file)
        with open_own(path) as written:
            digest = _digest(written)
    if training.described is not None:
        path = run_dir / _DESCRIBED
        with writing(path), replacing(path) as file:
            file.write(training.described.encode())
    names = ("history", "seconds", "communication", "differences", "xla")
    summary = {name: getattr(training, name) for name in names}
    summary |= {"tuning": describe_tuning(), "model": digest, "form": training.form.to_dict()}
    write_document(run_dir / _SUMMARY, {"schema": schema_id("training"), **summary})


def load_training(run_dir: Path) -> dict[str, Any]:
    """Read what ``save_training`` wrote, without the model: the history, how the chief has trained, ..."""
    with open_own(run_dir / _SUMMARY) as file:
        summary: dict[str, Any] = read("training", file.read())
    return {**summary, "form": Form.from_dict(summary["form"])}


def builder(run_dir: Path) -> Callable[[], keras.Model] | None:
    """Return what makes a model of the trained kind without its function; None if only its function can."""
    if not (run_dir / _DESCRIBED).exists():
        return None
    with open_own(run_dir / _DESCRIBED) as file:
        described = file.read().decode()

    def build() -> keras.Model:
        from tfdistr.training.described_model import made_again

        return made_again(described)

    return build


def load_state(run_dir: Path) -> ModelState:
    """Read the state of the trained model, as ``save_training`` wrote it."""
    path, digest = run_dir / _STATE, load_training(run_dir)["model"]
    with open_own(path) as file:
        if _digest(file) != digest:
            raise _damaged(path, "its SHA-256 is not the one in training.json")
        file.seek(0)
        try:
            return ModelState.read(file)
        except Exception as error:  # NumPy and zipfile raise errors of many kinds
            raise _damaged(path, f"{type(error).__name__}: {error}") from error


def _damaged(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(
        "The file of the trained model is damaged.",
        received=f"{path}: {reason}",
        fix="Remove result.json and resume the run: a checkpoint may have the model. The history of the "
        "result is complete.",
    )


def _digest(file: IO[bytes]) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
