"""Which program the workers of a job run, and what it needs."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tfdistr.clusters.local.local_cluster import WORKER
from tfdistr.jobs.caller import Caller
from tfdistr.r import functions
from tfdistr.utils.function_files import FunctionByName, PythonFunction

OF_FILE = PythonFunction("/a/file.py", "build", "digest")


def job(model: Any = print, *others: Any) -> Any:
    return SimpleNamespace(model=model, functions=(model, *others), seed=2**32 - 1)


@pytest.fixture(autouse=True)
def _r(monkeypatch: pytest.MonkeyPatch) -> None:
    """An R session, as it is after the R package has been loaded."""
    monkeypatch.setattr(functions, "_here", [])
    monkeypatch.setattr(functions, "rscript", lambda: "/r/bin/Rscript")


def test_workers_of_python(tmp_path: Path) -> None:
    seen: list[Any] = []
    with Caller(before_start=lambda *arguments: seen.append(arguments)).workers(job(), tmp_path) as program:
        assert program == (WORKER, {})
    assert seen == [(-1, str(tmp_path))]
    assert not list(tmp_path.iterdir())


BY_NAME = FunctionByName("model")


@pytest.mark.parametrize(("of_r", "model"), [(True, print), (False, BY_NAME), (True, BY_NAME)])
def test_workers_of_r(tmp_path: Path, of_r: bool, model: Any) -> None:
    libraries = ["/a/library"]
    functions.use_r(None, print, None, "/r", lambda: os.pathsep.join(libraries))
    libraries.append("/b")
    with Caller(of_r=of_r).workers(job(model), tmp_path) as program:
        scratch = tmp_path / "tmp"
        assert scratch.stat().st_mode & 0o777 == 0o700
        assert program.command == ("/r/bin/Rscript", *functions._FLAGS, "-e", "tfdistr:::worker_main()")
        assert program.env == {
            "RETICULATE_PYTHON": os.path.abspath(sys.executable), "R_LIBS": "/a/library:/b",
            "TMPDIR": str(scratch),
        }  # fmt: skip
        scratch.joinpath("left by R").touch()
    assert not scratch.exists()


def test_a_folder_of_a_run_with_a_space_has_no_files_of_r(tmp_path: Path) -> None:
    folder = tmp_path / "a run"
    folder.mkdir()
    with Caller(of_r=True).workers(job(), folder) as program:
        scratch = Path(program.env["TMPDIR"])
        assert scratch.is_dir()
        assert " " not in str(scratch)
    assert not scratch.exists()
    assert not list(folder.iterdir())


def test_the_folder_of_r_is_removed_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Caller(of_r=True).workers(job(), tmp_path):
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_a_python_function_of_a_file_needs_python_workers_in_r_too(tmp_path: Path) -> None:
    with Caller(of_r=True).workers(job(OF_FILE), tmp_path) as program:
        assert program.command == WORKER
        assert str(Path(functions.__file__).parents[2]) in program.env["PYTHONPATH"].split(os.pathsep)
    with Caller(of_r=True).workers(job(OF_FILE, FunctionByName("data")), tmp_path) as program:
        assert program.command[0] == "/r/bin/Rscript"


def test_python_with_an_embedded_r_keeps_its_libraries(tmp_path: Path) -> None:
    functions._here[:] = [functions.RSide(print, print, print, "/r", lambda: "/a/library", embedded=True)]
    with Caller().workers(job(FunctionByName("model")), tmp_path) as program:
        assert "R_LIBS" not in program.env
